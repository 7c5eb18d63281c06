"""Line charts as SVG text: panels side by side, readable on a light and on a dark page.

The picture has its own background, and takes the dark colours where the reader prefers them. Does
not know what the numbers mean; see picture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import floor, log10

from hicache.core.errors import CallerError

PANEL_WIDTH, HEIGHT = 430, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 104, 104, 62  # around the area of a panel
_LABEL_STEP = 15
_TICKS = 5
_CHARACTER = 6.6  # pixels of a character of the notes, for the breaks of lines

STYLE = """\
text{font:12px system-ui,sans-serif;fill:#24292f}
.title{font-size:17px;font-weight:600}
.head{font-size:13px;font-weight:600}
.note{fill:#57606a}
.page{fill:#ffffff}
.grid{stroke:#d8dee4;stroke-width:1}
.axis{stroke:#57606a;stroke-width:1}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.dashed{stroke-dasharray:5 4;stroke-width:1.5}
.a{stroke:#0969da}.b{stroke:#1a7f37}.c{stroke:#9a6700}.d{stroke:#57606a}
.e{stroke:#8250df}.f{stroke:#cf222e}.g{stroke:#0a7a7a}.h{stroke:#bf3989}
.dot.a,text.a{fill:#0969da}.dot.b,text.b{fill:#1a7f37}.dot.c,text.c{fill:#9a6700}
.dot.e,text.e{fill:#8250df}.dot.f,text.f{fill:#cf222e}.dot.g,text.g{fill:#0a7a7a}
.dot.h,text.h{fill:#bf3989}
text.a,text.b,text.c,text.d,text.e,text.f,text.g,text.h{stroke:none}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.note{fill:#9da7b3}.page{fill:#0d1117}
.grid{stroke:#30363d}.axis{stroke:#9da7b3}
.a{stroke:#58a6ff}.b{stroke:#3fb950}.c{stroke:#d29922}.d{stroke:#9da7b3}
.e{stroke:#bc8cff}.f{stroke:#ff7b72}.g{stroke:#39c5cf}.h{stroke:#f778ba}
.dot.a,text.a{fill:#58a6ff}.dot.b,text.b{fill:#3fb950}.dot.c,text.c{fill:#d29922}
.dot.e,text.e{fill:#bc8cff}.dot.f,text.f{fill:#ff7b72}.dot.g,text.g{fill:#39c5cf}
.dot.h,text.h{fill:#f778ba}
}"""


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


def svg(title: str, notes: Sequence[str], panels: Sequence[Panel]) -> str:
    """The picture. notes: lines of text below the title."""
    width = PANEL_WIDTH * max(2, len(panels))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        f'width="{width}" height="{HEIGHT}" role="img">',
        f"<title>{xml_text(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="20" y="30">{xml_text(title)}</text>',
    ]
    shown = [line for note in notes for line in _broken(note, int((width - 40) / _CHARACTER))]
    for place, note in enumerate(shown[:2]):
        parts.append(f'<text class="note" x="20" y="{50 + 16 * place}">{xml_text(note)}</text>')
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

    yield f'<text class="head" x="{left + 20}" y="{_TOP - 16}">{xml_text(panel.title)}</text>'
    for value in y_ticks:
        y = f"{up(value):.1f}"
        yield f'<line class="grid" x1="{first}" x2="{last}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{first - 8}" y="{y}" dy="4" text-anchor="end">{_number(value)}</text>'
    for value in x_ticks:
        x = f"{across(value):.1f}"
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 5}"/>'
        yield f'<text x="{x}" y="{bottom + 19}" text-anchor="middle">{_number(value)}</text>'
    yield f'<line class="axis" x1="{first}" x2="{last}" y1="{bottom}" y2="{bottom}"/>'
    middle = (first + last) / 2
    named = xml_text(panel.x_title)
    yield f'<text x="{middle}" y="{bottom + 40}" text-anchor="middle">{named}</text>'
    for line in panel.lines:
        places = [
            (f"{across(size):.1f}", f"{up(value):.1f}")
            for size, value in zip(panel.x, line.values, strict=True)
        ]
        points = " ".join(f"{x},{y}" for x, y in places)
        dashed = " dashed" if line.dashed else ""
        yield f'<polyline class="line {line.colour}{dashed}" points="{points}"/>'
        if not line.dashed:
            for x, y in places:
                yield f'<circle class="dot {line.colour}" cx="{x}" cy="{y}" r="3"/>'
    ends = [up(line.values[-1]) for line in panel.lines]
    x_label = f"{across(panel.x[-1]) + 9:.1f}"
    for line, label in zip(panel.lines, apart(ends), strict=True):
        place = f'x="{x_label}" y="{label:.1f}" dy="4"'
        yield f'<text class="{line.colour}" {place}>{xml_text(line.name)}</text>'


def apart(heights: Sequence[float]) -> list[float]:
    """The heights of labels, moved down as far as needed so that none covers another."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + _LABEL_STEP)
    return moved


def _broken(text: str, most: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > most:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def _number(value: float) -> str:
    return f"{value:,.10g}"


def xml_text(text: str) -> str:
    """Text for XML; characters that are not printable become "?"."""
    return escape("".join(char if char.isprintable() else "?" for char in text), quote=False)
