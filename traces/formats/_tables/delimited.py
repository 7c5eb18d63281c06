"""Rows of CSV: values between commas, semicolons or tabs, under a header.

A value in quotes may have several lines.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from .. import base
from ..base import Lines
from .base import MOST_COLUMNS, missing

_DELIMITERS = ",;\t"


def rows(lines: Lines, names: Sequence[str]) -> Iterator[Sequence[str]]:
    texts = _Texts(lines)
    delimiter = max(_DELIMITERS, key=texts.head.count)
    if texts.head.count(delimiter) >= MOST_COLUMNS:
        lines.wrong(f"at most {MOST_COLUMNS:,} columns", "more", "leave out what is not read")
    before = csv.field_size_limit(base.MAX_LINE_BYTES)
    try:
        reader = csv.reader(texts, delimiter=delimiter, strict=True)
        header = [name.strip() for name in next(reader)]
        for name in names:
            if name not in header:
                missing(lines, name, header)
        places = [header.index(name) for name in names]
        for row in reader:
            texts.size = 0
            if len(row) != len(header):
                lines.wrong(f"{len(header)} values", str(len(row)), "correct the line")
            yield [row[place].strip() for place in places]
    except csv.Error as error:
        lines.wrong("a line of CSV", base.shorten(str(error)), "correct the line")
    finally:
        csv.field_size_limit(before)


class _Texts(Iterator[str]):
    """The lines, of which those of one row have a bounded size. head: the first one."""

    def __init__(self, lines: Lines) -> None:
        self.size = 0
        self._lines = lines
        self._texts = lines.texts()
        self.head = next(self._texts)
        self._first: str | None = self.head

    def __next__(self) -> str:
        text = next(self._texts) if self._first is None else self._first
        self._first = None
        self.size += len(text)
        if self.size > base.MAX_LINE_BYTES:
            self._lines.wrong(
                f"rows of at most {base.MAX_LINE_BYTES} bytes",
                "a longer one",
                "correct the quotes, or leave out columns that are not read",
            )
        return text
