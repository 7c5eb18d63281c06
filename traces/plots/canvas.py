"""Lines and stacked bars in characters, for a terminal of any width, with or without colours.

Every line has a letter and every part of a bar a sign of its own, so that nothing depends on
colour. Does not know what is drawn (see charts), or print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_black")
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LEAST_COLUMNS = 20
_TICK_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Line:
    """Points of a line, with x ascending."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True)
class Axis:
    """A title, how to write a value, and whether the axis is logarithmic."""

    title: str
    written: Callable[[float], str]
    log: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of part of stacked bars: its name, its sign, its style."""

    name: str
    sign: str
    style: str


def lines(drawn: Sequence[Line], x: Axis, y: Axis, width: int, height: int = 13) -> list[Text]:
    """The rows of a chart; no line is wider than `width`. y begins at 0."""
    points = [at for line in drawn for at in line.xs if at > 0 or not x.log]
    tops = [at for line in drawn for at in line.ys]
    if not points or not tops:
        return [Text("nothing to draw")]
    top = max(tops) or 1.0
    scaled: Callable[[float], float] = log10 if x.log else float
    low, high = scaled(min(points)), scaled(max(points))
    left = max(len(y.written(top)), len(y.written(0.0))) + 1
    columns = max(_LEAST_COLUMNS, width - left - 2)
    places = np.linspace(low, high, columns) if high > low else np.full(columns, low)
    cells = [[(" ", "")] * columns for _ in range(height)]
    for number, line in enumerate(drawn):
        cell = (_LETTERS[number % len(_LETTERS)], STYLES[number % len(STYLES)])
        for column, covered in enumerate(_rows(line, scaled, places, top, height)):
            for at in covered:
                cells[at][column] = cell
    found = [Text(y.title)] if y.title else []
    for number, row in enumerate(cells):
        value = top * (height - 1 - number) / (height - 1)
        told = y.written(value) if not number % 3 else ""
        found.append(_row(f"{told:>{left}} |", row))
    found.append(Text(f"{'':>{left}} +{'-' * columns}"))
    found.append(Text(_ticks(low, high, x, columns, left + 2)))
    found.append(Text(f"{x.title:^{columns}}".rjust(columns + left + 2).rstrip()))
    for number, line in enumerate(drawn):
        letter, style = _LETTERS[number % len(_LETTERS)], STYLES[number % len(STYLES)]
        found.append(Text.assemble(("  " + letter, style), f" {line.name}"))
    return [_cut(text, width) for text in found]


def bars(
    labels: Sequence[str],
    values: Sequence[Sequence[float]],
    parts: Sequence[Part],
    width: int,
) -> list[Text]:
    """A stacked bar below another for each label. values: by part, one for each label."""
    left = max(map(len, labels), default=0)
    columns = max(_LEAST_COLUMNS, width - left - 2)
    table = np.asarray(values, dtype=float).reshape(len(parts), len(labels))
    most = table.sum(axis=0).max(initial=0.0) or 1.0
    ends = np.rint(table.cumsum(axis=0) / most * columns).astype(int)
    found = []
    for place, label in enumerate(labels):
        text, before = Text(f"{label:>{left}} |"), 0
        for part, end in zip(parts, ends[:, place].tolist(), strict=True):
            text.append(part.sign * (end - before), part.style)
            before = end
        found.append(text)
    found += [Text.assemble((f"  {part.sign}", part.style), f" {part.name}") for part in parts]
    return [_cut(text, width) for text in found]


def _rows(
    line: Line,
    scaled: Callable[[float], float],
    places: NDArray[np.float64],
    top: float,
    height: int,
) -> list[range]:
    """The rows that a line covers in each column; none outside of its points."""
    known = [(x, y) for x, y in zip(line.xs, line.ys, strict=True) if x > 0 or scaled is float]
    if not known:
        return [range(0)] * len(places)
    xs, ys = np.array([scaled(x) for x, _ in known]), np.array([y for _, y in known])
    heights = np.interp(places, xs, ys)
    rows = (height - 1 - np.rint(heights / top * (height - 1))).astype(int).tolist()
    slack = 1e-9 + (places[1] - places[0])
    inside = ((places >= xs[0] - slack) & (places <= xs[-1] + slack)).tolist()
    found, before = [], None
    for row, there in zip(rows, inside, strict=True):
        if not there:
            found.append(range(0))
            continue
        last = row if before is None else before
        found.append(range(min(row, last + 1), max(row, last - 1) + 1))
        before = row
    return found


def _row(start: str, cells: Sequence[tuple[str, str]]) -> Text:
    text = Text(start)
    for sign, style in cells:
        text.append(sign, style)
    text.rstrip()
    return text


def _ticks(low: float, high: float, axis: Axis, columns: int, left: int) -> str:
    """Values below an axis, as many as there is room for."""
    count = max(2, columns // _TICK_COLUMNS)
    row = [" "] * (left + columns)
    for place in range(count):
        share = place / (count - 1)
        value = low + share * (high - low)
        told = axis.written(10**value if axis.log else value)
        start = left + round(share * (columns - 1)) - (len(told) if place == count - 1 else 0)
        start = min(max(left, start - len(told) // 2 * (0 < place < count - 1)), len(row))
        row[start : start + len(told)] = told
    return "".join(row).rstrip()


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="crop")
    return text
