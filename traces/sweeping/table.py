"""The points of a sweep: what counts of each, which are best, as a table; and line charts as SVG
text, such as what host memory buys: hits beside times to first token.

A point is on the front if no other point is at least as good in everything (GPUs, host memory, hit
rate, p90 time to first token, goodput) and better in something.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any, NamedTuple, TextIO

from msgspec.structs import astuple
from rich.table import Table

from hicache.core.errors import CallerError

from ..curves import Curve
from ..error_bars import together
from ..replaying.config import ReplayConfig
from ..replaying.options import HOST_SIZES, FleetOptions, StorageOptions, plain
from ..reporting import digits, gigabytes, pools_note
from ..results.record import Result, record_of
from ..terminal.options import rows as options_of
from ..terminal.tables import console, pairs, table
from .points import Document, Grid, Value

MOST_ROWS = 60
_LOADS = {
    "speed": "arrivals {:g} x as fast",
    "scale_sessions": "{:g} x the sessions of the trace",
    "request_rate": "{:g} requests/s",
    "concurrency": "{} requests at once",
}


Outcome = dict[str, Any]


def outcome_of(point: Document) -> Outcome:
    """The figures of a point; docs/json.md describes them. point: its document, see points."""
    result = record_of(Result, point)
    share, hits = result.total, result.total.hit_tokens if result.trace.identity else None
    ttft = result.latency_s.ttft if result.latency_s else None
    replicas = len(result.fleet.replicas) if result.fleet else 1
    return {
        **{name: point[name] for name in ("label", "point", "key", "digest")},
        "gpus": result.config["tp"] * result.config["pp"] * replicas,
        "host_bytes": sum(use.pool_bytes_total.host for use in result.components.values()),
        "hit_rate": share.hit_rate if hits else None,
        "ceiling_rate": share.ceiling_rate if hits else None,
        "tier_rates": [*map(share.rate, astuple(hits))] if hits else [],
        "ttft_p50_s": ttft.p50 if ttft else None,
        "ttft_p90_s": ttft.p90 if ttft else None,
        "goodput_requests_per_s": result.slo.goodput_requests_per_s if result.slo else None,
        "running_mean": result.load.running_mean if result.load else None,
        "running_most": result.load.running_most if result.load else None,
        "overloaded": bool(result.load and result.load.overloaded),
    }


def front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The points that no other one beats, in their order. Of equal points, all."""
    costs = [
        (
            *(outcome["gpus"], outcome["host_bytes"], outcome["ttft_p90_s"] or 0),
            *(-(outcome[name] or 0) for name in ("hit_rate", "goodput_requests_per_s")),
        )
        for outcome in outcomes
    ]
    return [
        outcome
        for outcome, own in zip(outcomes, costs, strict=True)
        if not any(
            other != own and all(theirs <= ours for theirs, ours in zip(other, own, strict=True))
            for other in costs
        )
    ]


def ordered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The best first: by goodput, else by the p90 time to first token, else by hit rate."""

    def key(outcome: Outcome) -> tuple[float, float, float, str]:
        goodput, hits = outcome["goodput_requests_per_s"] or 0, outcome["hit_rate"] or 0
        return -goodput, outcome["ttft_p90_s"] or 0, -hits, outcome["label"]

    return sorted(outcomes, key=key)


def of_host_memory(grid: Grid) -> bool:
    """Whether points differ in the host memory of one server alone, without a tier behind it."""
    others = (*options_of(StorageOptions), *options_of(FleetOptions))
    alone = all(getattr(grid.base, item.name) is None for item in others)
    return alone and [*grid.axes] == ["host_bytes"]


def enough_bytes(curve: Curve, settings: ReplayConfig) -> int | None:
    """The least host memory, to a page and on all ranks, with which LRU hits what it hits with any
    amount; 0 where the device alone is enough. None for several pools, which have other pages."""
    if len(settings.core.components) > 1:
        return None
    pages = curve.pages_for(curve.unbounded)
    if pages <= settings.core.device_pages[0]:
        return 0
    return pages * settings.page_bytes[0] * settings.page_ranks


# -- as a table


def print_outcomes(
    points: Sequence[Document],
    outcomes: Sequence[Outcome],
    grid: Grid,
    total: int,
    enough: int | None,
    stream: TextIO,
) -> None:
    """The table, along an axis if there is one, else best first; and what was replayed. points:
    their documents, at least one. total: points of the grid. enough: see enough_bytes."""
    out, along = console(stream), len(grid.axes) == 1
    rows = outcomes if along else ordered(outcomes)
    shown = f", {MOST_ROWS} shown" * (len(rows) > MOST_ROWS)
    title = f"{len(outcomes)} of {total} points{'' if along else ', best first'}{shown}"
    out.print(_table(title, rows, grid.axes))
    first = record_of(Result, points[0])
    models, loads = ({name(point["config"]) for point in points} for name in (model_of, load_of))
    result = [
        ("trace", f"{os.path.basename(first.trace.path)}, {first.trace.requests:,} requests"),
        ("model", "see the points" if len(models) > 1 else models.pop()),
        ("load", "see the points" if len(loads) > 1 else loads.pop()),
    ]
    if first.trace.identity:
        result.append(("hits of any cache", f"{_rate(first.total.ceiling_rate)} % at most"))
    if enough is not None:
        size = gigabytes(enough) if enough else "none: the device has all"
        result.append(("enough host memory", f"{size} (LRU, one request at a time)"))
    elif of_host_memory(grid) and (note := pools_note(first.config["components"])):
        result.append(("enough host memory", f"not known: the curve {note}"))
    if any(outcome["overloaded"] for outcome in outcomes):
        result.append(("!", "overloaded: more arrives than the machine can do"))
    result.append(("*", "no other is better in everything: GPUs, memory, hits, p90, goodput"))
    lines = together(point.get("expected_error") for point in points)
    result += [("expected error", line.partition(": ")[2]) for line in lines]
    out.print(pairs("", result))


def _table(title: str, rows: Sequence[Outcome], axes: Mapping[str, Sequence[Value]]) -> Table:
    kept = {row["key"] for row in front(rows)}
    hits, timed, served = (
        any(row[name] is not None for row in rows)
        for name in ("hit_rate", "ttft_p90_s", "goodput_requests_per_s")
    )
    loaded = timed and not axes.keys().isdisjoint((*_LOADS, *HOST_SIZES))
    tiers = 2 if hits and len(axes) == 1 else 0
    tiers += any(row["tier_rates"][2:] > [0] for row in rows) if tiers else 0
    named = [name.replace("_", "-") for name in axes] or ["point"]
    columns = [*named, "", *("device %", "host %", "storage %")[:tiers], *["hits %"] * hits]
    columns += ["p50 s", "p90 s"] * timed + ["running", "most"] * loaded
    result = table(title, *columns, *["good/s"] * served)
    for column in result.columns[: len(named)]:
        column.justify = "left"
    for item in rows[:MOST_ROWS]:
        cells = [
            next(
                (value.text for value in axis if plain(value.value) == item["point"].get(name)), ""
            )
            for name, axis in axes.items()
        ]
        result.add_row(
            *(cells or [item["label"]]),
            "*" * (item["key"] in kept) + "!" * item["overloaded"],
            *map(_rate, (*item["tier_rates"][:tiers], *[item["hit_rate"]] * hits)),
            *map(_number, (item["ttft_p50_s"], item["ttft_p90_s"]) if timed else ()),
            *((_number(item["running_mean"]), f"{item['running_most']:,}") if loaded else ()),
            *map(_number, [item["goodput_requests_per_s"]] * served),
        )
    return result


def model_of(config: Mapping[str, Any]) -> str:
    names = ("replicas", "prefill_replicas", "decode_replicas")
    members = sum(config.get(name, 0) for name in names)
    several = f"{members} replicas of " if members > 1 else ""
    return f"{config['model']} on {several}{config['tp'] * config['pp']} x {config['hardware']}"


def load_of(config: Mapping[str, Any]) -> str:
    """The load that was played, from the config of a result."""
    if config["mode"] == "hits":
        return "one request at a time"
    named = [name for name in _LOADS if config.get(name) not in (None, 1)]
    return (
        ", ".join(_LOADS[name].format(config[name]) for name in named)
        or "the arrivals of the trace"
    )


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate * 100:.1f}"


def _number(value: float | None) -> str:
    """With two decimals, fewer of large ones."""
    if value is None:
        return ""
    return f"{value:,.2f}" if 1 <= value < 1000 else digits(value, 2 if value < 1 else 3)


# -- as a picture


_WIDTH, _HEIGHT = 430, 400  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 104, 104, 62  # around its area
_LABEL_STEP = 15
_TICKS = 5
_COLOURS = ("#0969da", "#1a7f37", "#9a6700", "#8250df", "#cf222e", "#0a7a7a", "#bf3989")
_GREY = "#57606a"  # of dashed lines
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-size:17px;font-weight:600}"
    ".head{font-size:13px;font-weight:600}.grid{stroke:#d8dee4}.axis{stroke:#57606a}"
    "polyline{fill:none;stroke-width:2.2;stroke-linejoin:round}"
)


class Line(NamedTuple):
    """One line of a panel. dashed: a limit, not a measurement."""

    name: str
    values: Sequence[float]
    dashed: bool = False


class Panel(NamedTuple):
    """title: says the quantity and its unit. x_title: says those of the horizontal axis."""

    title: str
    x_title: str
    x: Sequence[float]
    lines: Sequence[Line]


def check_picture(path: str | None, option: str = "--output") -> None:
    """Raises CallerError for the name of a file that would not look like an SVG."""
    if path is not None and path != "-" and not path.lower().endswith(".svg"):
        raise CallerError(
            f"{option}: expected a name that ends in .svg, found {path}; the picture is an SVG"
        )


def of_sizes(points: Sequence[Document]) -> str:
    """What host memory buys, of points with ascending sizes; empty without any point of a trace
    that says which prompts begin alike."""
    pairs = [(point["point"]["host_bytes"] / 1e9, record_of(Result, point)) for point in points]
    x = [size for size, result in pairs if result.trace.identity]
    results = [result for _, result in pairs if result.trace.identity]
    if not x:
        return ""
    wholes, first = [result.total for result in results], results[0]
    lines = [
        Line("ceiling", [item.ceiling_rate * 100 for item in wholes], dashed=True),
        Line("device + host", [item.hit_rate * 100 for item in wholes]),
        Line("device", [item.rate(item.hit_tokens.device) * 100 for item in wholes]),
    ]
    panels = [Panel("prompt tokens that hit (%)", "host memory (GB)", x, lines)]
    times = [result.latency_s.ttft for result in results if result.latency_s is not None]
    if times:
        names = ("p90", "mean", "p50")
        lines = [Line(name, [getattr(time, name) for time in times]) for name in names]
        panels.append(Panel("time to first token (s)", "host memory (GB)", x, lines))
    note = f"{first.total.requests:,} requests of {os.path.basename(first.trace.path)}, "
    note += f"{model_of(first.config)}, {load_of(first.config)}"
    return svg("What host memory buys", note, panels)


def svg(title: str, note: str, panels: Sequence[Panel]) -> str:
    """The picture, with its panels side by side. note: a line below the title."""
    width = _WIDTH * max(2, len(panels))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" '
        f'width="{width}" height="{_HEIGHT}" role="img">',
        f'<style>{_STYLE}</style><rect fill="#fff" width="{width}" height="{_HEIGHT}" rx="6"/>',
        _text("title", 20, 30, title),
        _text("note", 20, 50, note),
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, place * _WIDTH)
    return "\n".join([*parts, "</svg>", ""])


def ticks(most: float) -> list[float]:
    """A few round numbers from 0 up to the first one that is not below `most`."""
    if most <= 0:
        return [0.0, 1.0]
    power = 10.0 ** floor(log10(most / _TICKS))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit * _TICKS >= most)
    return [step * place for place in range(ceil(most / step - 1e-9) + 1)]


def _panel(panel: Panel, left: int) -> Iterator[str]:
    x_ticks = ticks(max(panel.x))
    y_ticks = ticks(max((value for line in panel.lines for value in line.values), default=0.0))
    first, last = left + _LEFT, left + _WIDTH - _RIGHT
    bottom = _HEIGHT - _BOTTOM

    def across(value: float) -> float:
        return first + (last - first) * value / x_ticks[-1]

    def up(value: float) -> float:
        return bottom - (bottom - _TOP) * value / y_ticks[-1]

    yield _text("head", left + 20, _TOP - 16, panel.title)
    yield _text("", (first + last) / 2, bottom + 40, panel.x_title, "middle")
    for value in x_ticks:
        yield _text("", across(value), bottom + 19, f"{value:,.10g}", "middle")
    for value in y_ticks:
        name, y = "grid" if value else "axis", f"{up(value):.1f}"
        yield f'<line class="{name}" x1="{first}" x2="{last}" y1="{y}" y2="{y}"/>'
        yield _text("", first - 8, up(value) + 4, f"{value:,.10g}", "end")
    colours, label = iter(_COLOURS), 0.0
    for line in sorted(panel.lines, key=lambda line: -line.values[-1]):  # from above
        colour, dashed = _GREY if line.dashed else next(colours), ""
        points = [f"{across(x):.1f},{up(y):.1f}" for x, y in zip(panel.x, line.values, strict=True)]
        if line.dashed:
            dashed = ' stroke-dasharray="5 4"'
        yield f'<polyline stroke="{colour}"{dashed} points="{" ".join(points)}"/>'
        label = max(up(line.values[-1]), label + _LABEL_STEP)  # so that none covers another
        yield _text("", across(panel.x[-1]) + 9, label + 4, line.name, "start", colour)


def _text(name: str, x: float, y: float, text: str, anchor: str = "start", colour: str = "") -> str:
    """Characters that are not printable become "?"."""
    shown = escape("".join(char if char.isprintable() else "?" for char in text), quote=False)
    style = f' style="fill:{colour}"' * bool(colour)
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{shown}</text>'
    )
