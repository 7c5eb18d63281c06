"""The project's own format: one request a line, its tokens as segments of streams.

docs/formats.md describes it for users. A token is identified by its stream and its offset in the
stream; every segment starts at offset 0. The output is a segment too, so a later prompt can contain
it and hit it. Formats that only have prompt hashes cannot express that; for what is converted from
them, version 2 has requests of blocks and of lengths (_block_lines).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

from sim.sending import SenderOptions

from . import _block_lines, _blocks, _chains, _native_fields, _sender
from ._chains import Chains
from ._jobs import Jobs
from ._native_fields import NAME, SEGMENTS, Header
from ._native_segments import Request, requests
from ._rows import About, Row
from ._segments import NativeTrace, Tokens
from ._sniff import Head
from ._tenants import Tenants
from .base import Lines, Record, Trace

SUMMARY = "segments of token streams, the output's identity included (docs/formats.md)"

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


def reading(files: Iterable[Lines], streams: Mapping[str, int]) -> Iterator[Request]:
    """The requests of a file of segments, each forgotten when the next one is read. Raises
    CallerError for another kind of file. streams: the number of each name."""
    about = About()
    lines, records, header = _begin(files, about)
    if header.requests != SEGMENTS:
        lines.wrong("requests of segments to read once", header.requests, "leave out --stream")
    if header.sender is not None:
        lines.wrong("requests that arrive at their times", "a sender", "leave out --stream")
    return requests(lines, records, header, streams)


def made(lines: Lines, records: Iterable[Record], streams: Mapping[str, int]) -> Iterator[Request]:
    """The requests of records that a generator makes, checked as those of a file."""
    return requests(lines, records, Header(1, None), streams)


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


class Streams(dict[str, int]):
    """A number for each name, in the order of their appearance."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def _segments(lines: Lines, records: Iterator[Record], header: Header, limit: int) -> NativeTrace:
    jobs = Jobs()
    jobs.sender = header.sender
    tokens = Tokens()
    tenants = Tenants()
    chains = Chains("q")
    numbers = array("q")
    sessions: dict[str, int] = {}
    for one in requests(lines, records, header, Streams()):
        try:
            tokens.add(one.segments, one.namespace, chains)
        except OverflowError:
            lines.wrong(f"at most {_chains.MOST} different segments", "more", "split the trace")
        session = _session(one, jobs, sessions)
        jobs.add(
            one.arrival_ns, one.input_length, one.output_length, one.after, session, one.priority
        )
        tenants.add(one.tenant)
        numbers.append(lines.number)
        if len(jobs) == limit:
            break
    if not jobs:
        lines.wrong("a request after the header", "the end of the file", "add requests")
    return NativeTrace(lines.path, jobs, numbers, tokens, tenants)


def _session(one: Request, jobs: Jobs, sessions: dict[str, int]) -> int:
    """The session that the request names, or that of the request before it, or a new one."""
    if one.session is not None:
        return sessions.setdefault(one.session, len(jobs))
    return jobs.session(one.after) if one.after >= 0 else len(jobs)
