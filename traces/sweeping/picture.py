"""The points as a table with bars, and as a picture with two panels: hits and time to first token.

Does not choose sizes or draw conclusions; see points and words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.table import Table

from ..replaying.settings import Settings
from ..reporting.amounts import gigabytes
from ..terminal.tables import console, table
from .points import Point, machine
from .svg import Line, Panel, svg

_BAR = 18  # characters of the longest bar, where the figures leave room for them


def print_points(points: Sequence[Point], stream: TextIO) -> None:
    out = console(stream)
    unbounded = out.options.update(max_width=10 * out.width)
    too_wide = out.measure(_table(points, _BAR), options=unbounded).maximum - out.width
    out.print(_table(points, max(1, _BAR - max(0, too_wide))))


def _table(points: Sequence[Point], bar: int) -> Table:
    timed = bool(points) and points[0].ttft_s is not None
    times = ("mean", "p50", "p90") if timed else ()
    result = table(
        f"Hits of prompt tokens{', time to first token (s)' * timed}; bars end at the ceiling",
        *("memory", "device", "host", "all", *times, "# device + host"),
    )
    result.columns[-1].justify = "left"
    ceiling = max((point.ceiling_rate for point in points), default=0.0) or 1.0
    for point in points:
        device = round(point.device_hit_rate / ceiling * bar)
        both = round(point.hit_rate / ceiling * bar)
        cells = [
            f"{rate * 100:.1f} %"
            for rate in (point.device_hit_rate, point.host_hit_rate, point.hit_rate)
        ]
        if point.ttft_s is not None:
            spread = point.ttft_s
            cells += [_time(value) for value in (spread.mean, spread.p50, spread.p90)]
        drawn = "#" * device + "+" * (both - device)
        result.add_row(gigabytes(point.host_bytes), *cells, drawn)
    if points:
        result.add_section()
        cells = ["", "", f"{ceiling * 100:.1f} %", *[""] * len(times), "-" * bar]
        result.add_row("ceiling", *cells)
    return result


def _time(time_s: float) -> str:
    return f"{time_s:,.2f}" if time_s < 1000 else f"{time_s:,.0f}"


def picture(name: str, settings: Settings, points: Sequence[Point]) -> str:
    """The picture as SVG text. name: of the trace. points: in order of size, at least one."""
    sizes = [point.host_bytes / 1e9 for point in points]
    together = ", all ranks together" * (settings.parallelism.ranks > 1)
    x_title = f"host memory (GB{together})"
    hits = Panel(
        "prompt tokens that hit (%)",
        x_title,
        sizes,
        [
            Line("ceiling", [point.ceiling_rate * 100 for point in points], "d", dashed=True),
            Line("device + host", [point.hit_rate * 100 for point in points], "b"),
            Line("device", [point.device_hit_rate * 100 for point in points], "a"),
        ],
    )
    panels = [hits]
    spreads = [point.ttft_s for point in points if point.ttft_s is not None]
    if len(spreads) == len(points):
        lines = [
            Line("p90", [spread.p90 for spread in spreads], "c"),
            Line("mean", [spread.mean for spread in spreads], "b"),
            Line("p50", [spread.p50 for spread in spreads], "a"),
        ]
        panels.append(Panel("time to first token (s)", x_title, sizes, lines))
    note = f"{points[0].requests:,} requests of {name}, {machine(settings)}"
    if settings.mode == "timed" and settings.speed != 1:
        note += f", arrivals {float(settings.speed):g} x as fast"
    if settings.load.scale_sessions != 1:
        note += f", {float(settings.load.scale_sessions):g} x the sessions of the trace"
    if settings.mode == "hits":
        note += ", one request at a time"
    return svg("What host memory buys", [note], panels)
