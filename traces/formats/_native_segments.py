"""Requests of segments, one after another, as the lines of a native trace say them.

Lives here: reading and checking one request. Does not keep any; see native, which takes them into
columns, and _streamed, which forgets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from . import _native_fields, base
from ._native_fields import Header
from .base import Lines, Record

_FIELDS = _native_fields.FIELDS | {"input", "output"}


class Request(NamedTuple):
    """One request. segments: (number of the stream, tokens) of its prompt, then of its output.

    arrival_ns: with `after` >= 0, the delay after the end of that request. session: None where the
    line names none.
    """

    segments: list[tuple[int, int]]
    namespace: str
    arrival_ns: int
    input_length: int
    output_length: int
    after: int
    session: str | None
    priority: int
    tenant: str


def requests(
    lines: Lines, records: Iterable[Record], header: Header, streams: Mapping[str, int]
) -> Iterator[Request]:
    """The requests in order. streams: the number of each name. Raises CallerError with the line."""
    known = _FIELDS | {"tenant"} if header.version > 1 else _FIELDS
    last_ns = 0
    for index, record in enumerate(records):
        _native_fields.check_fields(lines, record, known)
        after, arrival_ns = _native_fields.arrival(lines, record, index)
        if after < 0:
            base.not_backwards(lines, arrival_ns, last_ns)
            last_ns = arrival_ns
        segments = _prompt(lines, record, streams)
        length = sum([count for _, count in segments])
        output = _segment(lines, record.get("output"), "output", streams)
        segments.append(output)
        if length + output[1] > base.MAX_REQUEST_TOKENS:
            lines.wrong(
                f"at most {base.MAX_REQUEST_TOKENS} tokens in a request",
                str(length + output[1]),
                "shorten the request",
            )
        yield Request(
            segments,
            _native_fields.name(lines, record, "namespace"),
            arrival_ns,
            length,
            output[1],
            after,
            base.text(lines, record, "session") if "session" in record else None,
            _native_fields.priority(lines, record),
            _native_fields.name(lines, record, "tenant"),
        )


def _prompt(lines: Lines, record: Record, streams: Mapping[str, int]) -> list[tuple[int, int]]:
    segments = record.get("input")
    if type(segments) is not list or not segments:
        lines.wrong_field(record, "input", "a list of [stream, length] pairs, at least one")
    return [_segment(lines, pair, "input", streams) for pair in segments]


def _segment(lines: Lines, pair: Any, field: str, streams: Mapping[str, int]) -> tuple[int, int]:
    if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
        lines.wrong(
            f'{field}: [stream, length] pairs such as ["a", 256]',
            base.show(pair),
            "correct the field",
        )
    name, length = pair
    if type(length) is not int or not 1 <= length <= base.MAX_REQUEST_TOKENS:
        lines.wrong(
            f"{field}: a length from 1 to {base.MAX_REQUEST_TOKENS}",
            base.show(length),
            "correct the field",
        )
    return streams[name], length
