"""Files with rows and named columns: CSV and JSON objects here, Parquet in _parquet.

Each kind has a function of the lines and of names that yields the values of the named columns of
each row, in the order of the names, and keeps `lines` at the row for errors. A value is None where
the row has none. It raises CallerError for a column that the table has not, and takes bounded
memory.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from hicache.core.errors import closest

from . import base
from ._documents import elements
from .base import Lines, Record

MOST_COLUMNS = 10_000
_LISTED = 12
_COMPARED = 500
_DELIMITERS = ",;\t"
_ABSENT = object()
_LOOKED_AT = 1000  # objects: a field that none of them has is missing


def missing(lines: Lines, name: str, found: Sequence[str]) -> NoReturn:
    """Raises CallerError for a column that is not there. found: the columns that are."""
    listed = ", ".join(base.shorten(one) for one in found[:_LISTED])
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    near = [one for one in found[:_COMPARED] if len(one) <= base.MOST_NAME]
    lines.wrong(
        f"a column {base.shorten(name)}",
        f"the columns {listed}{more}{closest(name, near)}",
        "name those of the log, such as --columns time=ts,input=prompt_tokens,output=answer_tokens",
    )


def csv_rows(lines: Lines, names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Values between commas, semicolons or tabs, under a header. A value in quotes may have several
    lines."""
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


def json_rows(lines: Lines, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    """JSON objects: one on each line, or a list of them. The name of a field within a field has a
    dot: `usage.prompt_tokens`."""
    unseen = {*names}
    found: dict[str, None] = {}
    records = elements(lines) if lines.head.lstrip().startswith(b"[") else lines
    for count, record in enumerate(records):
        values = [_field(record, name) for name in names]
        if unseen:
            unseen -= {name for name, one in zip(names, values, strict=True) if one is not _ABSENT}
            if len(found) < MOST_COLUMNS:
                found.update(dict.fromkeys(_names(record)))
            if count >= _LOOKED_AT:
                break
        yield [None if value is _ABSENT else value for value in values]
    for name in names:
        if name in unseen:
            missing(lines, name, [*found])


def _field(record: Record, name: str) -> Any:
    if name in record:
        return record[name]
    value: Any = record
    for part in name.split("."):
        value = value.get(part, _ABSENT) if type(value) is dict else _ABSENT
    return value


def _names(record: Record) -> Iterator[str]:
    for name, value in record.items():
        if type(value) is dict:
            yield from (f"{name}.{part}" for part in value)
        else:
            yield name
