"""The picture: predicted against published, both logarithmic, a panel for each quantity.

Around the line of no error lie the bands of 10 and of 25 %. Hit rates have linear axes. Points of
the two halves differ in colour and in shape. Does not judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from ...sweeping.svg import HEIGHT, PANEL_WIDTH, STYLE, xml_text
from ..choosing import FIT, HALVES, JUDGE
from ..figures import COPY, HITS, KERNEL, THROUGHPUT, TPOT, TTFT
from ..judging import Pair, judged
from ..predicting import Outcome

PANELS = {
    TTFT: ("TTFT", "ms", 1e3),
    TPOT: ("TPOT and ITL", "ms", 1e3),
    THROUGHPUT: ("Throughput", "tokens/s or requests/s", 1.0),
    HITS: ("Hit rate", "%", 100.0),
    COPY: ("Copies", "GB/s", 1e-9),
    KERNEL: ("Kernels", "us", 1e6),
}
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 24, 104, 62
_COLUMNS = 3
_BANDS = ((0.25, "wide"), (0.10, "near"))
_COLOURS = {FIT: "c", JUDGE: "a"}
_MORE = ".wide{fill:#0969da;opacity:.08}.near{fill:#0969da;opacity:.14}.mark{opacity:.7}"


def picture(outcomes: Sequence[Outcome], title: str, notes: Sequence[str]) -> str:
    """The picture as SVG text. notes: at most two lines below the title."""
    pairs = {half: judged(outcomes, half) for half in HALVES}
    shown = [
        quantity
        for quantity in PANELS
        if any(figure.quantity == quantity for half in HALVES for _, figure in pairs[half])
    ]
    columns = max(1, min(_COLUMNS, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    width, height = PANEL_WIDTH * columns, 70 + (HEIGHT - 70) * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{xml_text(title)}</title>",
        f"<style>{STYLE}{_MORE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
        f'<text class="title" x="20" y="30">{xml_text(title)}</text>',
    ]
    for place, note in enumerate(notes[:2]):
        parts.append(f'<text class="note" x="20" y="{50 + 16 * place}">{xml_text(note)}</text>')
    for place, quantity in enumerate(shown):
        left, top = place % columns * PANEL_WIDTH, place // columns * (HEIGHT - 70)
        parts += _panel(quantity, pairs, left, top)
    return "\n".join([*parts, "</svg>", ""])


def _panel(quantity: str, pairs: dict[str, list[Pair]], left: int, top: int) -> Iterator[str]:
    name, unit, factor = PANELS[quantity]
    found = {
        half: [
            (one.published * factor, one.predicted * factor, outcome.id)
            for outcome, one in pairs[half]
            if one.quantity == quantity and (quantity == HITS or one.predicted > 0)
        ]
        for half in HALVES
    }
    scale = _Scale(
        [value for half in HALVES for x, y, _ in found[half] for value in (x, y)], quantity == HITS
    )
    x0, x1 = left + _LEFT, left + PANEL_WIDTH - _RIGHT
    y0, y1 = top + HEIGHT - _BOTTOM, top + _TOP

    def across(value: float) -> float:
        return x0 + (x1 - x0) * scale.part(value)

    def up(value: float) -> float:
        return y0 - (y0 - y1) * scale.part(value)

    yield f'<text class="head" x="{left + 20}" y="{y1 - 12}">{xml_text(name)} ({unit})</text>'
    if quantity != HITS:
        for band, style in _BANDS:
            corners = [
                (scale.low, scale.low * (1 + band)),
                (scale.high / (1 + band), scale.high),
                (scale.high, scale.high),
                (scale.high, scale.high * (1 - band)),
                (scale.low / (1 - band), scale.low),
                (scale.low, scale.low),
            ]
            path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in corners)
            yield f'<polygon class="{style}" points="{path}"/>'
    for value in scale.ticks():
        x, y = f"{across(value):.1f}", f"{up(value):.1f}"
        yield f'<line class="grid" x1="{x0}" x2="{x1}" y1="{y}" y2="{y}"/>'
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{y0}" y2="{y1}"/>'
        yield f'<text x="{x0 - 8}" y="{y}" dy="4" text-anchor="end">{value:,.6g}</text>'
        yield f'<text x="{x}" y="{y0 + 18}" text-anchor="middle">{value:,.6g}</text>'
    yield f'<line class="axis" x1="{x0}" x2="{x1}" y1="{y0}" y2="{y1}"/>'
    yield f'<text x="{(x0 + x1) / 2}" y="{y0 + 40}" text-anchor="middle">published</text>'
    for half in HALVES:
        for published, predicted, name in found[half]:
            yield _mark(half, across(published), up(predicted), name)
    for place, half in enumerate(HALVES):
        at = x0 + 10, y1 + 14 + 16 * place
        yield _mark(half, at[0], at[1] - 4, half)
        yield f'<text x="{at[0] + 10}" y="{at[1]}">{half} ({len(found[half])})</text>'


def _mark(half: str, x: float, y: float, name: str) -> str:
    """A dot for a judged row, a square for a fitted one."""
    style = f'class="mark dot {_COLOURS[half]}"'
    title = f"<title>{xml_text(name)}</title>"
    if half == JUDGE:
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="2.6">{title}</circle>'
    return (
        f'<rect {style} x="{x - 2.2:.1f}" y="{y - 2.2:.1f}" width="4.4" height="4.4">{title}</rect>'
    )


class _Scale:
    """Both axes of a panel: powers of ten around all values, or 0 to 100."""

    def __init__(self, values: Sequence[float], linear: bool) -> None:
        self._linear = linear
        positive = [value for value in values if value > 0] or [1.0]
        self.low = 0.0 if linear else 10.0 ** floor(log10(min(positive)))
        self.high = 100.0 if linear else 10.0 ** ceil(log10(max(positive) * 1.0001))

    def part(self, value: float) -> float:
        """Where a value lies, between 0 and 1."""
        if self._linear:
            return value / self.high
        value = min(max(value, self.low), self.high)
        return log10(value / self.low) / log10(self.high / self.low)

    def ticks(self) -> list[float]:
        if self._linear:
            return [0.0, 25.0, 50.0, 75.0, 100.0]
        first, last = round(log10(self.low)), round(log10(self.high))
        return [10.0**power for power in range(first, last + 1)]
