"""Rows of a Parquet file, a few at a time, with pyarrow (the extra `logs`).

The name of a field within a field has a dot. Imported only for such a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
from pyarrow import parquet

from . import base
from ._clock import UNITS, Instant
from ._tables import MOST_COLUMNS, missing
from .base import Lines

_MOST_BATCH = 4096  # rows
_BATCH = 32 << 20  # bytes
_READ = 1 << 20  # bytes of a column at once, so that row groups may have any size
_MOST_TEXT = 16 << 20  # bytes, of the metadata
_BAD = "write the file again"


def rows(lines: Lines, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    try:
        with parquet.ParquetFile(
            lines.path,
            buffer_size=_READ,
            thrift_string_size_limit=_MOST_TEXT,
            thrift_container_size_limit=_MOST_TEXT,
        ) as file:
            _check(lines, file, names)
            yield from _rows(lines, file, names)
    except (pyarrow.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
        lines.element = "(Parquet)"
        lines.wrong("a Parquet file that can be read", base.shorten(str(error)), _BAD)


def _check(lines: Lines, file: parquet.ParquetFile, names: Sequence[str]) -> None:
    """Raises CallerError for what is not there, and what would fill the memory."""
    lines.element = "(columns)"
    metadata = file.metadata
    if metadata.num_columns > MOST_COLUMNS:
        lines.wrong(
            f"at most {MOST_COLUMNS:,} columns", f"{metadata.num_columns:,}", "write fewer of them"
        )
    found = [file.schema.column(place).path for place in range(metadata.num_columns)]
    for name in names:
        if name not in found:
            missing(lines, name, found)


def _rows(lines: Lines, file: parquet.ParquetFile, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    count = 0
    for batch in file.iter_batches(_batch(file), columns=[*names], use_threads=False):
        table = pyarrow.Table.from_batches([batch])
        while any(pyarrow.types.is_struct(one.type) for one in table.schema):
            table = table.flatten()
        columns = [_values(table.column(name)) for name in names]
        for values in zip(*columns, strict=True):
            count += 1
            lines.number = count
            lines.element = f"row {count}"
            yield values


def _batch(file: parquet.ParquetFile) -> int:
    """The rows that are read at once. Says nothing of single columns, since asking a broken file
    for one ends the process."""
    groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
    largest = max((one.total_byte_size // max(1, one.num_rows) for one in groups), default=0)
    return min(_MOST_BATCH, max(1, _BATCH // max(1, largest)))


def _values(column: pyarrow.ChunkedArray) -> list[Any]:
    if not pyarrow.types.is_timestamp(column.type):
        return list(column.to_pylist())
    unit_ns = UNITS[column.type.unit]
    counts = column.cast(pyarrow.int64()).to_pylist()
    return [None if count is None else Instant(count * unit_ns) for count in counts]
