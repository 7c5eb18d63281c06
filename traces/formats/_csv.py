"""Reads a CSV file by the names of its columns, and checks the values of a row.

Does not know the columns of any format.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import _clock, base
from .base import Lines


class Record(NamedTuple):
    """The values of a row by the names of the columns."""

    lines: Lines
    values: dict[str, str]

    def integer(self, column: str, least: int, do: str = "correct the field") -> int:
        text = self.values[column]
        value = int(text) if text.isdecimal() and len(text) < 20 else -1
        if not least <= value <= base.MAX_REQUEST_TOKENS:
            self.lines.wrong(
                f"{column}: an integer from {least} to {base.MAX_REQUEST_TOKENS}",
                base.shorten(text) or "nothing",
                do,
            )
        return value

    def seconds(self, column: str) -> int:
        """A number of seconds, as nanoseconds."""
        text = self.values[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        most = base.MAX_TIME_MS // 1000
        if not math.isfinite(value) or not 0 <= value <= most:
            self.lines.wrong(
                f"{column}: seconds from 0 to {most}",
                base.shorten(text) or "nothing",
                "correct the field",
            )
        return round(value * base.NS_PER_S)

    def date(self, column: str) -> int:
        """A date with time, as nanoseconds since 1970. Without a zone it is taken for UTC."""
        try:
            return _clock.moment_ns(self.values[column])
        except ValueError:
            self.lines.wrong(
                f"{column}: a time such as 2023-11-16 18:17:03.9799600, from 1970 to 2109",
                base.shorten(self.values[column]) or "nothing",
                "correct the field",
            )


def records(lines: Lines, needed: Sequence[str]) -> Iterator[Record]:
    """The rows after the header. Raises CallerError if a needed column is missing, or a row has
    not as many values as the header."""
    texts = lines.texts()
    names = [name.strip() for name in _row(lines, next(texts))]
    missing = [name for name in needed if name not in names]
    if missing:
        lines.wrong(
            f"the columns {', '.join(needed)}",
            f"a header without {', '.join(missing)}",
            "correct the header",
        )
    for text in texts:
        row = _row(lines, text)
        if len(row) != len(names):
            lines.wrong(f"{len(names)} values", f"{len(row)}", "correct the line")
        yield Record(lines, dict(zip(names, map(str.strip, row), strict=True)))


def _row(lines: Lines, text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration) as error:
        lines.wrong("a line of CSV", f"{base.shorten(text)} ({error})", "correct the line")
