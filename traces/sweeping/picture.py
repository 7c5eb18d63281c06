"""What host memory buys: the points of a sweep over sizes of host memory as a table with bars, and
as a picture with two panels, hits and time to first token.

Does not choose sizes or draw conclusions; see outcome.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.table import Table

from hicache.core.errors import CallerError

from ..replaying.declared.fleet import FleetOptions
from ..replaying.declared.storage import StorageOptions
from ..reporting.amounts import gigabytes
from ..results.reading import record_of
from ..results.record import Result
from ..terminal.rows import rows
from ..terminal.tables import console, table
from .grid import Grid
from .svg import Line, Panel, check_picture, svg

_BAR = 18  # characters of the longest bar, where the figures leave room for them


@dataclass(frozen=True, slots=True)
class Size:
    """The replay with so much host memory."""

    host_bytes: int
    result: Result

    @property
    def device_rate(self) -> float:
        return self.result.whole.rate(self.result.whole.hit_tokens.device)


def of_host_memory(grid: Grid) -> bool:
    """Whether points differ in the host memory of one server alone, without a tier behind it."""
    others = (*rows(StorageOptions), *rows(FleetOptions))
    alone = all(getattr(grid.base, one.name) is None for one in others)
    return alone and [axis.name for axis in grid.axes] == ["host_bytes"]


def check_grid(path: str | None, grid: Grid) -> None:
    """Raises CallerError for a picture of a grid that has none, or with another name."""
    check_picture(path, "--picture")
    if path is not None and not of_host_memory(grid):
        raise CallerError(
            "--picture: expected several --host-bytes of one server without storage, and one value "
            "of every other option; give such as --host-bytes 0,256GB,1TB"
        )


def sizes_of(points: Sequence[Mapping[str, Any]]) -> list[Size]:
    """The documents of points (see work), in order of size; none of a trace of lengths only."""
    found = [Size(one["point"].get("host_bytes", 0), record_of(Result, one)) for one in points]
    known = [size for size in found if size.result.trace.identity]
    return sorted(known, key=lambda size: size.host_bytes)


def print_sizes(sizes: Sequence[Size], stream: TextIO) -> None:
    out = console(stream)
    unbounded = out.options.update(max_width=10 * out.width)
    too_wide = out.measure(_table(sizes, _BAR), options=unbounded).maximum - out.width
    out.print(_table(sizes, max(1, _BAR - max(0, too_wide))))


def _table(sizes: Sequence[Size], bar: int) -> Table:
    timed = bool(sizes) and sizes[0].result.latency_s is not None
    served = bool(sizes) and sizes[0].result.slo is not None
    times = ("mean", "p50", "p90") if timed else ()
    named = ("good/s",) if served else ()
    result = table(
        f"Hits of prompt tokens{', time to first token (s)' * timed}; bars end at the ceiling",
        *("memory", "device", "host", "all", *times, *named, "# device + host"),
    )
    result.columns[-1].justify = "left"
    ceiling = max((size.result.whole.ceiling_rate for size in sizes), default=0.0) or 1.0
    for size in sizes:
        whole = size.result.whole
        device = round(size.device_rate / ceiling * bar)
        both = round(whole.hit_rate / ceiling * bar)
        host_rate = whole.rate(whole.hit_tokens.host)
        rates = (size.device_rate, host_rate, whole.hit_rate)
        cells = [f"{rate * 100:.1f} %" for rate in rates]
        if size.result.latency_s is not None:
            spread = size.result.latency_s.ttft
            cells += [_time(value) for value in (spread.mean, spread.p50, spread.p90)]
        if size.result.slo is not None:
            cells.append(f"{size.result.slo.goodput_requests_per_s:,.2f}")
        drawn = "#" * device + "+" * (both - device)
        result.add_row(gigabytes(size.host_bytes), *cells, drawn)
    if sizes:
        result.add_section()
        rest = [""] * (len(times) + len(named))
        result.add_row("ceiling", "", "", f"{ceiling * 100:.1f} %", *rest, "-" * bar)
    return result


def _time(time_s: float) -> str:
    return f"{time_s:,.2f}" if time_s < 1000 else f"{time_s:,.0f}"


def picture(sizes: Sequence[Size]) -> str:
    """The picture as SVG text. sizes: in order, at least one."""
    first = sizes[0].result
    config, amounts = first.config, [size.host_bytes / 1e9 for size in sizes]
    ranks = config["tp"] * config["pp"]
    x_title = f"host memory (GB{', all ranks together' * (ranks > 1)})"
    wholes = [size.result.whole for size in sizes]
    hits = Panel(
        "prompt tokens that hit (%)",
        x_title,
        amounts,
        [
            Line("ceiling", [whole.ceiling_rate * 100 for whole in wholes], "d", dashed=True),
            Line("device + host", [whole.hit_rate * 100 for whole in wholes], "b"),
            Line("device", [size.device_rate * 100 for size in sizes], "a"),
        ],
    )
    panels = [hits]
    spreads = [size.result.latency_s.ttft for size in sizes if size.result.latency_s is not None]
    if len(spreads) == len(sizes):
        lines = [
            Line("p90", [spread.p90 for spread in spreads], "c"),
            Line("mean", [spread.mean for spread in spreads], "b"),
            Line("p50", [spread.p50 for spread in spreads], "a"),
        ]
        panels.append(Panel("time to first token (s)", x_title, amounts, lines))
    note = f"{first.whole.requests:,} requests of {os.path.basename(first.trace.path)}, "
    note += f"{config['model']} on {ranks} x {config['hardware']}"
    if config["mode"] == "hits":
        note += ", one request at a time"
    elif (config.get("speed") or 1) != 1:
        note += f", arrivals {config['speed']:g} x as fast"
    if (config.get("scale_sessions") or 1) != 1:
        note += f", {config['scale_sessions']:g} x the sessions of the trace"
    return svg("What host memory buys", [note], panels)
