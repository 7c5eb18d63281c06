"""The charts of a report as plotly figures in JSON: traces and layouts, without plotly itself.

A colour that begins with @ is a name that the page replaces by the colour of its theme. Every chart
has a table beside it that says the same (see tables). Does not write HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, TypeAlias

from .document import FIRST_SEEN, LOST, REQUESTS, TIERS
from .markup import chart_text
from .numbers import percent, requests, seconds, short
from .words import policy_name, series_name

Figure: TypeAlias = dict[str, Any]
Variant: TypeAlias = Mapping[str, Any]

_MOST_POINTS = 400  # of one line
_LEGEND_ROW = 20  # pixels
_MOST_ROWS_HIGH = 40  # bars below each other
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_PATTERNS = ("/", "x", "\\", "-", "+", "|", ".")
_LINE = 24  # characters of a label beside a bar
_LINES = 7  # colours of lines: @line0 to @line6
# The colours @lost0 to @lost2 of reasons; others have @lost1 and differ by their patterns.
_LOST_COLOURS = {"evicted": 0, "evicted_or_not_ready": 0, "not_ready": 2}
_POLICY_DASH = {"optimum": "dash", "bound": "dot"}
WAYS = {
    "d2h_bytes": "device to host",
    "h2d_bytes": "host to device",
    "storage_read_bytes": "storage to host",
    "storage_written_bytes": "host to storage",
}
PARTS = (("queue", "queue"), ("load", "load from host"), ("compute", "compute"))


def layout(x: str, y: str, height: int = 380, **more: Any) -> Figure:
    """What all charts share. x, y: titles of the axes."""
    return {
        "height": height,
        "xaxis": {"title": {"text": x}, "automargin": True, "zeroline": False},
        "yaxis": {"title": {"text": y}, "automargin": True, "zeroline": False},
        **more,
    }


def curve(document: Mapping[str, Any]) -> Figure:
    """Hit rate against capacity, a line for each policy."""
    in_bytes = document.get("capacities_bytes")
    capacities = in_bytes or document["capacities_tokens"]
    unit, scale = ("GB", 1e9) if in_bytes else ("tokens", 1)
    places = _thinned(len(capacities))
    xs = [capacities[at] / scale for at in places]
    traces = []
    for number, (name, found) in enumerate(document["policies"].items()):
        rates = found["hit_rates"]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if len(xs) > 40 else "lines+markers",
                "name": chart_text(policy_name(name)),
                "x": xs,
                "y": [round(rates[at], 5) for at in places],
                "line": {
                    "color": f"@line{number % _LINES}",
                    "width": 2.5,
                    "dash": _POLICY_DASH.get(name, "solid"),
                },
                "marker": {"size": 6, "symbol": number},
                "hovertemplate": f"%{{x:,.4g}} {unit}: %{{y:.1%}}",
            }
        )
    found = layout(f"capacity ({unit}, logarithmic)", "prompt tokens that hit")
    rates = [rate for trace in traces for rate in trace["y"]]
    most = min(1.0, 1.1 * max(rates, default=1.0)) or 1.0
    found["xaxis"] |= _logarithmic(xs)
    found["yaxis"] |= {"tickformat": ".0%", "range": [0, most]}
    working = document.get("working_set_tokens")
    if working and capacities:
        per_token = (in_bytes[-1] / document["capacities_tokens"][-1]) if in_bytes else 1
        traces.append(_vertical(working * per_token / scale, "working set", most))
    return {"data": traces, "layout": found}


def tokens(variants: Sequence[Variant]) -> Figure:
    """A bar for each variant: where its prompt tokens came from."""
    traces = []
    for name in series_of(variants):
        counts = [sum(one["timeline"]["series"].get(name, ())) for one in variants]
        totals = [max(1, one["whole"]["input_tokens"]) for one in variants]
        if any(counts):
            bar = _bar(name, _reasons(variants)) | {
                "orientation": "h",
                "y": list(range(len(variants))),
                "x": [round(one / total, 5) for one, total in zip(counts, totals, strict=True)],
                "text": [short(one) for one in counts],
                "textposition": "none",
                "hovertemplate": "%{x:.1%}, %{text} tokens",
            }
            traces.append(bar)
    found = layout("share of prompt tokens", "", _high(len(variants)), barmode="stack")
    found["xaxis"] |= {"tickformat": ".0%", "range": [0, 1]}
    found["yaxis"] |= _labels(variants)
    return {"data": traces, "layout": found}


def series_of(variants: Sequence[Variant]) -> list[str]:
    """The series of tokens that any of the variants has, from the bottom of the stack."""
    return [*TIERS, *(LOST + reason for reason in _reasons(variants)), FIRST_SEEN]


def _reasons(variants: Sequence[Variant]) -> list[str]:
    """Every reason of loss, the largest first."""
    found: dict[str, int] = {}
    for variant in variants:
        for reason, lost in variant["lost_by_reason"].items():
            found[reason] = found.get(reason, 0) + lost
    return sorted(found, key=lambda reason: (-found[reason], reason))


def _bar(name: str, reasons: Sequence[str]) -> Figure:
    """The look of a series: tiers and first seen are plain, each reason of loss has a pattern."""
    bar: Figure = {"type": "bar", "name": chart_text(series_name(name))}
    if not name.startswith(LOST):
        return bar | {"marker": {"color": f"@{name}", "line": {"width": 0}}}
    place = reasons.index(name[len(LOST) :])
    shape = _PATTERNS[place % len(_PATTERNS)]
    colour = f"@lost{_LOST_COLOURS.get(reasons[place], 1)}"
    marker = {"color": colour, "line": {"width": 0}, "pattern": _pattern(shape)}
    return bar | {"marker": marker}


def _pattern(shape: str) -> Figure:
    """Lines over the colour of a bar; none for an empty shape."""
    return {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": "@pattern",
        "fgopacity": 0.7,
        "size": 7,
        "solidity": 0.15,
    }


def timeline(variant: Variant) -> Figure:
    """Stacked prompt tokens of each bucket of time."""
    found = variant["timeline"]
    bucket, traces = found["bucket"], []
    for name in series_of([variant]):
        counts = found["series"].get(name, ())
        if any(counts):
            bar = _bar(name, list(variant["lost_by_reason"]))
            traces.append(
                bar
                | {
                    "x0": bucket / 2,
                    "dx": bucket,
                    "y": list(counts),
                    "width": bucket,
                    "hovertemplate": "%{y:,} tokens",
                }
            )
    by_request = found["axis"] == REQUESTS
    axis = "request" if by_request else "time of admission (s)"
    width = requests(bucket) if by_request else seconds(bucket)
    shown = layout(axis, f"prompt tokens in {width}", barmode="stack", bargap=0)
    return {"data": traces, "layout": shown | {"hovermode": "x unified"}}


def first_tokens(variants: Sequence[Variant], limit_s: float | None) -> Figure:
    """The distribution of the time to first token, a line for each variant."""
    traces = []
    for number, variant in enumerate(variants):
        times = variant["ttft_quantiles_s"]
        if times:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": chart_text(variant["label"], 36),
                    "x": [max(time, 1e-6) for time in times],
                    "y": [round(at / (len(times) - 1), 4) for at in range(len(times))],
                    "line": {
                        "color": f"@line{number % _LINES}",
                        "dash": _DASHES[number // _LINES % len(_DASHES)],
                        "width": 2.5,
                    },
                    "hovertemplate": "%{y:.0%} within %{x:,.4g} s",
                }
            )
    height = 340 + _LEGEND_ROW * len(traces) // 3
    found = layout("time to first token (s, logarithmic)", "share of requests", height)
    times = [time for trace in traces for time in trace["x"]]
    found["xaxis"] |= _logarithmic([*times, *([limit_s] if limit_s else [])])
    found["yaxis"] |= {"tickformat": ".0%", "range": [0, 1.02]}
    if limit_s:
        traces.append(_vertical(limit_s, f"SLO: {seconds(limit_s)}"))
    return {"data": traces, "layout": found}


def parts(variants: Sequence[Variant]) -> Figure:
    """Of what the mean time to first token consists, a bar for each variant."""
    timed = [one for one in variants if one["latency_s"]]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": list(range(len(timed))),
            "x": [one["latency_s"][key]["mean"] for one in timed],
            "marker": {
                "color": f"@{key}",
                "line": {"width": 0},
                "pattern": _pattern(shape),
            },
            "hovertemplate": "%{x:,.4g} s",
        }
        for (key, name), shape in zip(PARTS, ("", "/", ""), strict=True)
    ]
    found = layout("mean time to first token (s)", "", _high(len(timed)), barmode="stack")
    found["yaxis"] |= _labels(timed)
    return {"data": traces, "layout": found}


def moved(variant: Variant) -> Figure:
    """Bytes per second of each way between the tiers."""
    found, traces = variant["moved"] or {}, []
    for number, (key, name) in enumerate(WAYS.items()):
        if any(found.get(key, ())):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "x0": 0,
                    "dx": found["bucket_s"],
                    "y": [float(f"{one / found['bucket_s'] / 1e9:.5g}") for one in found[key]],
                    "line": {
                        "color": f"@way{number}",
                        "shape": "hv",
                        "width": 2,
                        "dash": _DASHES[number],
                    },
                    "hovertemplate": "%{y:,.4g} GB/s",
                }
            )
    shown = layout("time (s)", "GB/s, all ranks") | {"hovermode": "x unified"}
    shown["yaxis"] |= {"rangemode": "tozero"}
    return {"data": traces, "layout": shown}


def prefixes(document: Mapping[str, Any]) -> Figure:
    """The tree of hot prefixes, its root above: an area is what is reusable of a prefix and of what
    continues it, a colour what was hit of it."""
    edges = document["edges"]
    areas = [edge["reusable_tokens"] for edge in edges]
    for edge in reversed(edges):  # each stands behind its parent
        if edge["parent"] >= 0:
            areas[edge["parent"]] += areas[edge["id"]]
    depths: list[int] = []
    begins: list[int] = []
    ends = {-1: 0}  # by edge, where the next one of its children begins
    for edge, area in zip(edges, areas, strict=True):
        above = edge["parent"]
        depths.append(depths[above] + 1 if above >= 0 else 0)
        begins.append(ends[above])
        ends[above] += area
        ends[edge["id"]] = begins[-1]
    shown = [edge for edge in edges if depths[edge["id"]] < TREE_LEVELS]
    whole = ends[-1]
    classes = _shares(shown)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "ids": [f"p{edge['id']}" for edge in some],
            "y": [depths[edge["id"]] for edge in some],
            "base": [begins[edge["id"]] for edge in some],
            "x": [areas[edge["id"]] for edge in some],
            "width": 1,
            "text": [_label(edge) for edge in some],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "customdata": [f"{_label(edge)}<br>{_told(edge)}" for edge in some],
            "hovertemplate": "%{customdata}<extra></extra>",
            "marker": {"color": colour, "line": {"width": 1, "color": "@paper"}},
        }
        for name, colour, some in classes
        if some
    ]
    found = layout("reusable prompt tokens", "", 460, barmode="overlay")
    found |= {"showlegend": len(classes) > 1, "uniformtext": {"minsize": 9, "mode": "hide"}}
    found["xaxis"] |= {"range": [0, whole or 1], "showgrid": False}
    found["yaxis"] |= {"autorange": "reversed", "showticklabels": False, "showgrid": False}
    return {"data": traces, "layout": found}


def _shares(edges: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[Mapping[str, Any]]]]:
    """Edges by what was hit of them: name, colour and edges of each class; one class without a
    replay."""
    if any(edge["hit_tokens"] is None for edge in edges):
        return [("", "@device", list(edges))]
    step = 100 // len(_CIVIDIS)
    places = [min(len(_CIVIDIS) - 1, int(_share(edge) * len(_CIVIDIS))) for edge in edges]
    return [
        (
            f"{at * step} to {(at + 1) * step} % hit",
            colour,
            [edge for edge, place in zip(edges, places, strict=True) if place == at],
        )
        for at, colour in enumerate(_CIVIDIS)
    ]


# From dark to light, for readers with any colour vision.
_CIVIDIS = ("#00224e", "#3a4a6b", "#7d7c78", "#bcae6c", "#fee838")
TREE_LEVELS = 8


def _label(edge: Mapping[str, Any]) -> str:
    return f"{edge['requests']:,} requests<br>{short(edge['tokens'])} tokens"


def _share(edge: Mapping[str, Any]) -> float:
    reusable = edge["reusable_tokens"]
    return (edge["hit_tokens"] or 0) / reusable if reusable else 0.0


def _told(edge: Mapping[str, Any]) -> str:
    told = (
        f"to token {edge['end_tokens']:,}; reusable {short(edge['reusable_tokens'])}; first in "
        f"request {edge['first_request']}"
    )
    if edge["hit_tokens"] is None:
        return told
    return f"{told}; hit {percent(_share(edge))}"


def _thinned(length: int) -> list[int]:
    """At most so many places of a line, the first and the last among them."""
    if length <= _MOST_POINTS:
        return list(range(length))
    wanted = [at * (length - 1) // (_MOST_POINTS - 1) for at in range(_MOST_POINTS)]
    return sorted(set(wanted))


def _labels(variants: Sequence[Variant]) -> Figure:
    names = [_two_lines(one["label"]) for one in variants]
    places = list(range(len(variants)))
    return {"tickvals": places, "ticktext": names, "autorange": "reversed", "showgrid": False}


def _two_lines(label: str) -> str:
    """A label beside a bar, in two lines where it is long."""
    if len(label) <= _LINE:
        return chart_text(label)
    cut = label.rfind(" ", 0, _LINE + 1)
    cut = cut if cut > 0 else _LINE
    return f"{chart_text(label[:cut])}<br>{chart_text(label[cut:].strip(), _LINE)}"


def _high(bars: int) -> int:
    return 150 + 34 * min(bars, _MOST_ROWS_HIGH)


def _logarithmic(values: Sequence[float]) -> Figure:
    """An axis with ticks at 1, 2 and 5 times powers of ten, or at powers alone where it is long."""
    known = [value for value in values if value > 0]
    if not known:
        return {"type": "log"}
    low, high = log10(min(known)), log10(max(known))
    room = max(0.03 * (high - low), 0.02)
    steps = (1,) if high - low > 4 else (1, 3) if high - low > 2 else (1, 2, 5)
    ticks = [
        step * 10.0**power for power in range(floor(low) - 1, ceil(high) + 1) for step in steps
    ]
    shown = [tick for tick in ticks if low - room <= log10(tick) <= high + room]
    return {
        "type": "log",
        "range": [low - room, high + room],
        "tickvals": shown,
        "ticktext": [_tick(tick) for tick in shown],
    }


def _tick(value: float) -> str:
    return short(value) if value >= 1000 else f"{value:g}"


def _vertical(x: float, text: str, top: float = 1.0) -> Figure:
    """A vertical line with its name in the legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": chart_text(text),
        "x": [x, x],
        "y": [0, top],
        "line": {"color": "@mark", "width": 2, "dash": "longdash"},
        "hovertemplate": "%{x:,.4g}",
    }
