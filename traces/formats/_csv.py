"""Rows of CSV files that have a time and two lengths for each request, and nothing of its prompt.

Does not know the columns of any format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from . import base
from ._clock import moment_ns
from ._rows import About, Head, Row
from ._tables import csv_rows
from .base import Lines


def rows(
    files: Iterable[Lines],
    about: About,
    columns: Sequence[str],
    time_ns: Callable[[Lines, str, str], int],
    failed: str = "",
    session: str = "",
) -> Iterator[Row]:
    """columns: of the time, the prompt and the output. time_ns: reads a time, `seconds` or `date`.
    failed: the note of requests without a prompt or an output, which are left out; without it they
    are faults. session: a column that newer files have."""
    for lines in about.each(files):
        about.lengths_only()
        names = [*columns, *([session] if session in Head(lines).columns else [])]
        for moment, *lengths in csv_rows(lines, names):
            name = lengths.pop() if len(lengths) > 2 else ""
            prompt, output = (
                _length(lines, column, text, 0 if failed else 1)
                for column, text in zip(columns[1:], lengths, strict=True)
            )
            if prompt and output:
                arrival_ns = time_ns(lines, columns[0], moment)
                yield Row(arrival_ns, prompt, output, session=name[: base.MOST_NAME] or None)
            else:
                about.notes[failed] += 1


def seconds(lines: Lines, column: str, text: str) -> int:
    """A number of seconds, as nanoseconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    most = base.MAX_TIME_MS // 1000
    if not math.isfinite(value) or not 0 <= value <= most:
        _wrong(lines, column, f"seconds from 0 to {most}", text)
    return round(value * base.NS_PER_S)


def date(lines: Lines, column: str, text: str) -> int:
    """A date with time, as nanoseconds since 1970. Without a zone it is taken for UTC."""
    try:
        return moment_ns(text)
    except ValueError:
        _wrong(lines, column, "a time such as 2023-11-16 18:17:03.9799600, from 1970 to 2109", text)


def _length(lines: Lines, column: str, text: str, least: int) -> int:
    value = int(text) if text.isdecimal() and len(text) < 20 else -1
    if not least <= value <= base.MAX_REQUEST_TOKENS:
        _wrong(lines, column, f"an integer from {least} to {base.MAX_REQUEST_TOKENS}", text)
    return value


def _wrong(lines: Lines, column: str, expected: str, text: str) -> NoReturn:
    found = base.shorten(text) or "nothing"
    lines.wrong(f"{column}: {expected}", found, "correct the field")
