"""Native traces whose requests are blocks or lengths: reading and writing their lines.

    {"timestamp": 0, "input_length": 600, "output_length": 1, "blocks": [[7, 2], 30]}

A pair [id, count] stands for that many ids in a row, so a file whose ids count up stays small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _native_fields, base
from ._native_fields import BLOCKS, LENGTHS, NAME, Header
from ._rows import About, Row
from .base import Lines, Record

_LENGTHS = _native_fields.FIELDS | {"tenant", "input_length", "output_length"}
_BLOCKS = _LENGTHS | {"blocks"}


def rows(lines: Lines, records: Iterator[Record], header: Header, about: About) -> Iterator[Row]:
    """The requests after the header."""
    if header.requests == LENGTHS:
        about.lengths_only()
    else:
        about.fixed(lines, header.block_size)
        about.partial, about.knows_output = header.partial, header.knows_output
    known = _BLOCKS if about.identity else _LENGTHS
    for index, record in enumerate(records):
        _native_fields.check_fields(lines, record, known)
        after, arrival_ns = _native_fields.arrival(lines, record, index)
        length, output = (
            base.integer(lines, record, field, 1, base.MAX_REQUEST_TOKENS)
            for field in ("input_length", "output_length")
        )
        tokens = length + output if about.knows_output else length
        yield Row(
            arrival_ns,
            length,
            output,
            _blocks(lines, record, tokens, about) if about.identity else (),
            _native_fields.name(lines, record, "namespace"),
            after,
            base.text(lines, record, "session") if "session" in record else None,
            _native_fields.priority(lines, record),
            _native_fields.name(lines, record, "tenant"),
        )


def _blocks(lines: Lines, record: Record, tokens: int, about: About) -> list[int]:
    found = record.get("blocks")
    size = about.block_size
    most = -(-tokens // size) if about.partial else tokens // size
    if type(found) is not list:
        lines.wrong_field(record, "blocks", "a list of ids and of [id, count] pairs")
    ids: list[int] = []
    for part in found:
        if type(part) is int:
            ids.append(part)
        else:
            first, count = _pair(lines, part, most)
            ids.extend(range(first, first + count))
        if len(ids) > most:
            break
    if not tokens // size <= len(ids) <= most:
        found_count = f"{len(ids)} or more" if len(ids) > most else str(len(ids))
        lines.wrong(
            f"{most} blocks ({tokens} tokens / {size}, "
            f"rounded {'up' if about.partial else 'down'})",
            found_count,
            "correct the line",
        )
    return ids


def _pair(lines: Lines, part: Any, most: int) -> tuple[int, int]:
    if type(part) is not list or [*map(type, part)] != [int, int] or not 1 <= part[1] <= most:
        lines.wrong(
            f"blocks: ids, and [id, count] pairs of at most {most}",
            base.show(part),
            "correct the list",
        )
    return part[0], part[1]


def texts(rows: Iterable[Row], about: About, made_by: Record) -> Iterator[str]:
    """The lines of a native trace with these requests. about: complete before the first row."""
    header: Record = {"format": NAME, "version": 2, "made_by": made_by, "requests": LENGTHS}
    if about.identity:
        header |= {
            "requests": BLOCKS,
            "block_size": about.block_size,
            "partial_blocks": about.partial,
            "output_blocks": about.knows_output,
        }
    yield json.dumps(header) + "\n"
    for row in rows:
        yield f"{{{', '.join(_fields(row, about))}}}\n"


def _fields(row: Row, about: About) -> Iterator[str]:
    if row.after >= 0:
        yield f'"after": {row.after}'
        if row.arrival_ns:
            yield f'"delay": {base.milliseconds(row.arrival_ns)}'
    else:
        yield f'"timestamp": {base.milliseconds(row.arrival_ns)}'
    if row.session is not None:
        yield f'"session": {json.dumps(row.session)}'
    if row.scope:
        yield f'"namespace": {json.dumps(row.scope)}'
    if row.tenant:
        yield f'"tenant": {json.dumps(row.tenant)}'
    if row.priority:
        yield f'"priority": {row.priority}'
    yield f'"input_length": {row.input_length}, "output_length": {row.output_length}'
    if about.identity:
        yield f'"blocks": [{", ".join(_runs(row.blocks))}]'


def _runs(ids: Sequence[int]) -> Iterator[str]:
    start, count = 0, len(ids)
    while start < count:
        end = start + 1
        while end < count and ids[end] == ids[end - 1] + 1:
            end += 1
        yield str(ids[start]) if end - start == 1 else f"[{ids[start]}, {end - start}]"
        start = end
