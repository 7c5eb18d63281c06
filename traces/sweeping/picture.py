"""Line charts as SVG text: panels side by side, readable on a light and on a dark page; and what
host memory buys as such a picture, hits beside times to first token.

A picture has its own background, and takes the dark colours where the reader prefers them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from hicache.core.errors import CallerError

from ..results.record import Result
from .outcome import load_of, model_of

PANEL_WIDTH, HEIGHT = 430, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 104, 104, 62  # around the area of a panel
_LABEL_STEP = 15
_TICKS = 5
_LIGHT = "#0969da #1a7f37 #9a6700 #57606a #8250df #cf222e #0a7a7a #bf3989"  # lines a to h
_DARK = "#58a6ff #3fb950 #d29922 #9da7b3 #bc8cff #ff7b72 #39c5cf #f778ba"


def _colours(lines: str, text: str, page: str, grid: str) -> str:
    named = zip("abcdefgh", lines.split(), strict=True)
    each = (f".{name}{{stroke:{one}}}.dot.{name},text.{name}{{fill:{one}}}" for name, one in named)
    note = lines.split()[3]
    return (
        f"text{{fill:{text}}}.note{{fill:{note}}}.page{{fill:{page}}}.grid{{stroke:{grid}}}"
        f".axis{{stroke:{note}}}{''.join(each)}text{{stroke:none}}"
    )


STYLE = (
    "text{font:12px system-ui,sans-serif}.title{font-size:17px;font-weight:600}"
    ".head{font-size:13px;font-weight:600}.line{fill:none;stroke-width:2.2;stroke-linejoin:round}"
    ".dashed{stroke-dasharray:5 4;stroke-width:1.5}"
    f"{_colours(_LIGHT, '#24292f', '#fff', '#d8dee4')}"
    f"@media (prefers-color-scheme:dark){{{_colours(_DARK, '#e6edf3', '#0d1117', '#30363d')}}}"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel. colour: a to h, of the style. dashed: a limit, not a measurement."""

    name: str
    values: Sequence[float]
    colour: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """title: says the quantity and its unit. x_title: says those of the horizontal axis."""

    title: str
    x_title: str
    x: Sequence[float]
    lines: Sequence[Line]


def check_picture(path: str | None, option: str = "--output") -> None:
    """Raises CallerError for the name of a file that would not look like an SVG."""
    if path in (None, "-") or path.lower().endswith(".svg"):
        return
    if not os.path.exists(path) or os.path.isfile(path):  # a device or a pipe may have any name
        raise CallerError(
            f"{option}: expected a name that ends in .svg, found {path}; the picture is an SVG"
        )


def of_sizes(sizes: Sequence[tuple[int, Result]]) -> str:
    """What host memory buys. sizes: bytes, ascending, and the replay with so much; at least one."""
    x, results = [size / 1e9 for size, _ in sizes], [one for _, one in sizes]
    wholes = [one.whole for one in results]
    lines = [
        Line("ceiling", [one.ceiling_rate * 100 for one in wholes], "d", dashed=True),
        Line("device + host", [one.hit_rate * 100 for one in wholes], "b"),
        Line("device", [one.rate(one.hit_tokens.device) * 100 for one in wholes], "a"),
    ]
    panels = [Panel("prompt tokens that hit (%)", "host memory (GB)", x, lines)]
    times = [one.latency_s.ttft for one in results if one.latency_s is not None]
    if times:
        lines = [
            Line(name, [getattr(one, name) for one in times], colour)
            for name, colour in (("p90", "c"), ("mean", "b"), ("p50", "a"))
        ]
        panels.append(Panel("time to first token (s)", "host memory (GB)", x, lines))
    first = results[0]
    note = f"{first.whole.requests:,} requests of {os.path.basename(first.trace.path)}, "
    note += f"{model_of(first.config)}, {load_of(first.config)}"
    return svg("What host memory buys", [note], panels)


def svg(title: str, notes: Sequence[str], panels: Sequence[Panel]) -> str:
    """The picture. notes: lines of text below the title."""
    width = PANEL_WIDTH * max(2, len(panels))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        f'width="{width}" height="{HEIGHT}" role="img">',
        f"<title>{xml_text(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{HEIGHT}" rx="6"/>',
        _text("title", 20, 30, title),
        *(_text("note", 20, 50 + 16 * place, note) for place, note in enumerate(notes[:2])),
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, place * PANEL_WIDTH)
    return "\n".join([*parts, "</svg>", ""])


def ticks(most: float, count: int = _TICKS) -> list[float]:
    """About `count` round numbers from 0 up to the first one that is not below `most`."""
    if most <= 0:
        return [0.0, 1.0]
    power = 10.0 ** floor(log10(most / count))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit * count >= most)
    result = [0.0]
    while result[-1] < most * (1 - 1e-9):
        result.append(len(result) * step)
    return result


def _panel(panel: Panel, left: int) -> Iterator[str]:
    x_ticks = ticks(max(panel.x))
    y_ticks = ticks(max((value for line in panel.lines for value in line.values), default=0.0))
    first, last = left + _LEFT, left + PANEL_WIDTH - _RIGHT
    bottom, height = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _TOP

    def across(value: float) -> float:
        return first + (last - first) * value / x_ticks[-1]

    def up(value: float) -> float:
        return bottom - height * value / y_ticks[-1]

    yield _text("head", left + 20, _TOP - 16, panel.title)
    for value in y_ticks:
        y = f"{up(value):.1f}"
        yield f'<line class="grid" x1="{first}" x2="{last}" y1="{y}" y2="{y}"/>'
        yield _text("", first - 8, up(value) + 4, f"{value:,.10g}", "end")
    for value in x_ticks:
        yield _text("", across(value), bottom + 19, f"{value:,.10g}", "middle")
    yield f'<line class="axis" x1="{first}" x2="{last}" y1="{bottom}" y2="{bottom}"/>'
    yield _text("", (first + last) / 2, bottom + 40, panel.x_title, "middle")
    label = 0.0
    for line in sorted(panel.lines, key=lambda one: -one.values[-1]):  # from above
        places = [f"{across(x):.1f},{up(y):.1f}" for x, y in zip(panel.x, line.values, strict=True)]
        dashed = " dashed" * line.dashed
        points = " ".join(places)
        yield f'<polyline class="line {line.colour}{dashed}" points="{points}"/>'
        for x, y in (place.split(",") for place in places if not line.dashed):
            yield f'<circle class="dot {line.colour}" cx="{x}" cy="{y}" r="3"/>'
        label = max(up(line.values[-1]), label + _LABEL_STEP)  # so that none covers another
        yield _text(line.colour, across(panel.x[-1]) + 9, label + 4, line.name)


def _text(name: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{xml_text(text)}</text>"
    )


def xml_text(text: str) -> str:
    """Text for XML; characters that are not printable become "?"."""
    return escape("".join(char if char.isprintable() else "?" for char in text), quote=False)
