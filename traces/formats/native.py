"""The project's own format: one request a line, its tokens as segments of streams.

docs/formats.md describes it for users. A token is identified by its stream and its offset in the
stream; every segment starts at offset 0. The output is a segment too, so a later prompt can contain
it and hit it. Formats that only have prompt hashes cannot express that; for what is converted from
them, version 2 has requests of blocks and of lengths (_block_lines).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

from sim.sending import SenderOptions

from . import _block_lines, _blocks, _chains, _native_fields, _sender, base
from ._chains import Chains
from ._jobs import Jobs
from ._native_fields import NAME, SEGMENTS, Header
from ._rows import About, Row
from ._segments import NativeTrace, Segment, Tokens
from ._sniff import Head
from ._tenants import Tenants
from .base import Lines, Record, Trace

SUMMARY = "segments of token streams, the output's identity included (docs/formats.md)"

_FIELDS = _native_fields.FIELDS | {"input", "output"}


SAMPLE = """\
{"format": "hicache-trace", "version": 1}
{"timestamp": 0, "input": [["a", 600]], "output": ["b", 40]}
{"after": 0, "delay": 3, "input": [["a", 600], ["b", 40], ["c", 9]], "output": ["d", 2]}
"""


def header(made_by: Record, sender: SenderOptions | None = None) -> Record:
    """The first line of a file in this format. made_by: how the file was made. sender: how its
    requests are sent, if not when they arrive."""
    first: Record = {"format": NAME, "version": 1, "made_by": made_by}
    return first if sender is None else {**first, "sender": _sender.written(sender)}


def recognises(head: Head) -> bool:
    return "format" in head.keys and not head.is_list


def read(files: Iterable[Lines], about: About, limit: int) -> Trace:
    """Reads all requests, or the first `limit`. Raises CallerError with the line."""
    lines, records, header = _begin(files, about)
    if header.requests == SEGMENTS:
        about.no_blocks(lines)
        return _segments(lines, records, header, limit)
    found = _block_lines.rows(lines, records, header, about)
    trace = _blocks.read(found, about, lines.path, "native", limit)
    trace.jobs.sender = header.sender
    return trace


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    """The requests of a file of blocks or lengths. Raises CallerError for one of segments."""
    lines, records, header = _begin(files, about)
    if header.requests == SEGMENTS:
        lines.wrong("a trace in another format", "one in the native format", "use it as it is")
    return _block_lines.rows(lines, records, header, about)


def _begin(files: Iterable[Lines], about: About) -> tuple[Lines, Iterator[Record], Header]:
    lines = next(about.each(files))
    records = iter(lines)
    return lines, records, _native_fields.read_header(lines, next(records))


def _segments(lines: Lines, records: Iterator[Record], header: Header, limit: int) -> NativeTrace:
    known = _FIELDS | {"tenant"} if header.version > 1 else _FIELDS
    jobs = Jobs()
    jobs.sender = header.sender
    tokens = Tokens()
    tenants = Tenants()
    chains = Chains("q")
    numbers = array("q")
    streams: dict[str, int] = {}
    sessions: dict[str, int] = {}
    last_ns = 0
    for record in records:
        _native_fields.check_fields(lines, record, known)
        after, arrival_ns = _native_fields.arrival(lines, record, len(jobs))
        if after < 0:
            base.not_backwards(lines, arrival_ns, last_ns)
            last_ns = arrival_ns
        prompt = _prompt(lines, record, streams)
        output = _segment(lines, record.get("output"), "output", streams)
        length = sum([count for _, count in prompt])
        if length + output[1] > base.MAX_REQUEST_TOKENS:
            lines.wrong(
                f"at most {base.MAX_REQUEST_TOKENS} tokens in a request",
                str(length + output[1]),
                "shorten the request",
            )
        try:
            namespace = _native_fields.name(lines, record, "namespace")
            tokens.add((*prompt, output), namespace, chains)
        except OverflowError:
            lines.wrong(f"at most {_chains.MOST} different segments", "more", "split the trace")
        session = _session(lines, record, after, jobs, sessions)
        priority = _native_fields.priority(lines, record)
        jobs.add(arrival_ns, length, output[1], after, session, priority)
        tenants.add(_native_fields.name(lines, record, "tenant"))
        numbers.append(lines.number)
        if len(jobs) == limit:
            break
    if not jobs:
        lines.wrong("a request after the header", "the end of the file", "add requests")
    return NativeTrace(lines.path, jobs, numbers, tokens, tenants)


def _session(lines: Lines, record: Record, after: int, jobs: Jobs, sessions: dict[str, int]) -> int:
    """The session that the request names, or that of the request before it, or a new one."""
    if "session" in record:
        return sessions.setdefault(base.text(lines, record, "session"), len(jobs))
    return jobs.session(after) if after >= 0 else len(jobs)


def _prompt(lines: Lines, record: Record, streams: dict[str, int]) -> list[Segment]:
    segments = record.get("input")
    if type(segments) is not list or not segments:
        lines.wrong_field(record, "input", "a list of [stream, length] pairs, at least one")
    return [_segment(lines, pair, "input", streams) for pair in segments]


def _segment(lines: Lines, pair: Any, field: str, streams: dict[str, int]) -> Segment:
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
    return streams.setdefault(name, len(streams)), length
