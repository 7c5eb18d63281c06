"""Rows that are JSON objects: one on each line, or a list of them.

The name of a field within a field has a dot: `usage.prompt_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .._documents import elements
from ..base import Lines, Record
from .base import MOST_COLUMNS, missing

_ABSENT = object()
_LOOKED_AT = 1000  # objects: a field that none of them has is missing


def rows(lines: Lines, names: Sequence[str]) -> Iterator[Sequence[Any]]:
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
