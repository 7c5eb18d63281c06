"""The charts of a report on a terminal: the curve, times to first token, tokens over time.

Takes the same documents as the HTML report. Does not compute any figure of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.text import Text

from ..html.document import FIRST_SEEN, LOST, REQUESTS
from ..html.figures import series_of
from ..html.numbers import percent, requests, seconds, short
from ..html.words import policy_name, series_name
from ..terminal.tables import console
from ..terminal.text import name as shown
from .canvas import STYLES, Axis, Line, Part, bars, lines

_ROWS = 20  # bars below each other
_SIGNS = {"device": "#", "host": "+", "storage": "o", FIRST_SEEN: "."}
_PART_STYLES = {"device": "blue", "host": "yellow", "storage": "green", FIRST_SEEN: "bright_black"}
_LOST_SIGNS = "x%*=~@&"


def print_curve(curve: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Hit rate against capacity, one letter for each policy."""
    in_bytes = curve.get("capacities_bytes")
    sizes, unit = (in_bytes, "B") if in_bytes else (curve["capacities_tokens"], "tokens")
    drawn = [
        Line(policy_name(name), sizes, found["hit_rates"])
        for name, found in curve["policies"].items()
    ]
    x = Axis(f"capacity ({'bytes' if in_bytes else unit}, logarithmic)", short, log=True)
    _print("Hit rate against capacity", drawn, x, Axis("", percent), stream)


def print_variants(
    variants: Sequence[Mapping[str, Any]],
    stream: TextIO | None = None,
    slo: Mapping[str, Any] | None = None,
) -> None:
    """The times to first token of all variants, and where the tokens of each came from."""
    drawn = []
    for variant in variants:
        times = variant["ttft_quantiles_s"]
        if times:
            shares = [place / (len(times) - 1) for place in range(len(times))]
            drawn.append(Line(shown(variant["label"]), [max(one, 1e-6) for one in times], shares))
    limit = (slo or {}).get("ttft_s")
    if drawn:
        if limit:
            drawn.append(Line(f"SLO: {seconds(limit)}", [limit, limit], [0.0, 1.0]))
        x = Axis("time to first token (logarithmic)", seconds, log=True)
        _print("Share of requests by time to first token", drawn, x, Axis("", percent), stream)
    for variant in variants:
        _print_tokens(variant, stream)


def _print(title: str, drawn: Sequence[Line], x: Axis, y: Axis, stream: TextIO | None) -> None:
    out = console(stream)
    out.print(Text(f"\n{title}", style="bold"))
    for row in lines(drawn, x, y, out.width):
        out.print(row, no_wrap=True, crop=True)


def _print_tokens(variant: Mapping[str, Any], stream: TextIO | None) -> None:
    """Stacked bars over time, a row for each span."""
    timeline, out = variant["timeline"], console(stream)
    names = [name for name in series_of([variant]) if any(timeline["series"].get(name, ()))]
    longest = max((len(timeline["series"][name]) for name in names), default=0)
    if not longest:
        return
    step = -(-longest // _ROWS)
    starts = range(0, longest, step)
    by_request = timeline["axis"] == REQUESTS
    labels = [_label(start * timeline["bucket"], by_request) for start in starts]
    values = [
        [sum(timeline["series"][name][start : start + step]) for start in starts] for name in names
    ]
    width = step * timeline["bucket"]
    span = requests(width) if by_request else seconds(width)
    title = f"\nPrompt tokens admitted in each {span}: {shown(variant['label'])}"
    out.print(Text(title, style="bold"))
    for row in bars(labels, values, _parts(names), out.width):
        out.print(row, no_wrap=True, crop=True)


def _label(start: float, by_request: bool) -> str:
    return f"{start:,.0f}" if by_request else f"{start:,.6g} s"


def _parts(names: Sequence[str]) -> list[Part]:
    lost = [name for name in names if name.startswith(LOST)]
    found = []
    for name in names:
        if name in lost:
            place = lost.index(name)
            sign, style = _LOST_SIGNS[place % len(_LOST_SIGNS)], STYLES[3 + place % 3]
        else:
            sign, style = _SIGNS[name], _PART_STYLES[name]
        found.append(Part(series_name(name), sign, style))
    return found
