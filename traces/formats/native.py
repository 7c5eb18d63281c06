"""The project's own format: one request a line, its tokens as segments of streams.

docs/formats.md describes it for users. A token is identified by its stream and its offset in the
stream; every segment starts at offset 0. The output is a segment too, so a later prompt can contain
it and hit it. Formats that only have prompt hashes cannot express that; for what is converted from
them, version 2 has requests of blocks and of lengths:

    {"timestamp": 0, "input_length": 600, "output_length": 1, "blocks": [[7, 2], 30]}

A pair [id, count] stands for that many ids in a row, so a file whose ids count up stays small.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hicache.core.types import MOST_PRIORITY
from sim.sending import DISTRIBUTIONS, POLICIES, SenderOptions

from . import _blocks, _jobs, base
from ._jobs import Chains, Jobs, Tenants
from ._rows import About, Head, Row
from ._segments import NativeTrace, Tokens
from .base import Lines, Record, Trace

SUMMARY = "segments of token streams, the output's identity included (docs/formats.md)"

SAMPLE = """\
{"format": "hicache-trace", "version": 1}
{"timestamp": 0, "input": [["a", 600]], "output": ["b", 40]}
{"after": 0, "delay": 3, "input": [["a", 600], ["b", 40], ["c", 9]], "output": ["d", 2]}
"""

NAME = "hicache-trace"
VERSIONS = (1, 2)
SEGMENTS, BLOCKS, LENGTHS = "segments", "blocks", "lengths"
# Fields of a request whatever its tokens are.
FIELDS = frozenset({"timestamp", "after", "delay", "namespace", "session", "priority"})
_HEADER = frozenset(
    {
        "format",
        "version",
        "made_by",
        "sender",
        "requests",
        "block_size",
        "partial_blocks",
        "output_blocks",
    }
)


def header(made_by: Record, sender: SenderOptions | None = None) -> Record:
    """The first line of a file in this format. made_by: how the file was made. sender: how its
    requests are sent, if not when they arrive."""
    first: Record = {"format": NAME, "version": 1, "made_by": made_by}
    return first if sender is None else {**first, "sender": _written(sender)}


def recognises(head: Head) -> bool:
    return "format" in head.keys and not head.is_list


def read(files: Iterable[Lines], about: About, limit: int) -> Trace:
    """Reads all requests, or the first `limit`. Raises CallerError with the line."""
    lines, records, header = _begin(files, about)
    if header.requests == SEGMENTS:
        about.no_blocks(lines)
        return _segments(lines, records, header, limit)
    found = _block_rows(lines, records, header, about)
    trace = _blocks.read(found, about, lines.path, "native", limit)
    trace.jobs.sender = header.sender
    return trace


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    """The requests of a file of blocks or lengths. Raises CallerError for one of segments."""
    lines, records, header = _begin(files, about)
    if header.requests == SEGMENTS:
        lines.wrong("a trace in another format", "one in the native format", "use it as it is")
    return _block_rows(lines, records, header, about)


def _begin(files: Iterable[Lines], about: About) -> tuple[Lines, Iterator[Record], Header]:
    lines = next(about.each(files))
    records = iter(lines)
    return lines, records, read_header(lines, next(records))


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
            lines.wrong(f"at most {_jobs.MOST} different segments", "more", "split the trace")
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


@dataclass(frozen=True, slots=True)
class Header:
    """requests: what identifies their tokens. sender: how they are sent, None for when they arrive.
    The others are of blocks; see `About`."""

    version: int
    sender: SenderOptions | None
    requests: str = SEGMENTS
    block_size: int = 0
    partial: bool = True
    knows_output: bool = False


def read_header(lines: Lines, record: Record) -> Header:
    """The first line of the file. Raises CallerError if it is not one."""
    do = f'begin the file with {{"format": "{NAME}", "version": 1}}'
    if record.get("format") != NAME:
        lines.wrong_field(record, "format", f'"{NAME}"', do)
    version = record.get("version")
    if type(version) is not int or version not in VERSIONS:
        lines.wrong_field(record, "version", " or ".join(map(str, VERSIONS)), do)
    if version == 1:
        return Header(version, _read_sender(lines, record))
    check_fields(lines, record, _HEADER)
    requests = record.get("requests", SEGMENTS)
    if requests not in (SEGMENTS, BLOCKS, LENGTHS):
        lines.wrong_field(record, "requests", f'"{SEGMENTS}", "{BLOCKS}" or "{LENGTHS}"')
    if requests != BLOCKS:
        return Header(version, _read_sender(lines, record), requests)
    return Header(
        version,
        _read_sender(lines, record),
        requests,
        base.integer(lines, record, "block_size", 1, base.MAX_BLOCK_TOKENS),
        _flag(lines, record, "partial_blocks", True),
        _flag(lines, record, "output_blocks", False),
    )


def _flag(lines: Lines, record: Record, field: str, usual: bool) -> bool:
    value = record.get(field, usual)
    if type(value) is not bool:
        lines.wrong_field(record, field, "true or false")
    return value


def check_fields(lines: Lines, record: Record, known: frozenset[str]) -> None:
    """Raises CallerError for a field that nothing reads."""
    if not record.keys() <= known:
        unknown = next(field for field in record if field not in known)
        names = ", ".join(sorted(known))
        lines.wrong(f"only the fields {names}", base.show(unknown), "remove it")


def arrival(lines: Lines, record: Record, index: int) -> tuple[int, int]:
    """(after, arrival_ns), as in `Job`."""
    if "after" not in record:
        if "delay" in record:
            lines.wrong("delay only beside after", "delay alone", "add after, or use timestamp")
        return -1, base.nanoseconds(lines, record, "timestamp")
    if "timestamp" in record:
        lines.wrong("either timestamp or after", "both", "remove one of them")
    if not index:
        lines.wrong("a timestamp in the first request", "after", "give it a timestamp")
    after = base.integer(
        lines, record, "after", 0, index - 1, "name an earlier request, counted from 0"
    )
    return after, base.nanoseconds(lines, record, "delay") if "delay" in record else 0


def name(lines: Lines, record: Record, field: str) -> str:
    """An optional field of text; empty if it is absent."""
    return base.text(lines, record, field) if field in record else ""


def priority(lines: Lines, record: Record) -> int:
    """0 if the field is absent."""
    if "priority" not in record:
        return 0
    return base.integer(lines, record, "priority", -MOST_PRIORITY, MOST_PRIORITY)


_REQUEST = FIELDS | {"input", "output"}


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
    known = _REQUEST | {"tenant"} if header.version > 1 else _REQUEST
    last_ns = 0
    for index, record in enumerate(records):
        check_fields(lines, record, known)
        after, arrival_ns = arrival(lines, record, index)
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
            name(lines, record, "namespace"),
            arrival_ns,
            length,
            output[1],
            after,
            base.text(lines, record, "session") if "session" in record else None,
            priority(lines, record),
            name(lines, record, "tenant"),
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


_LENGTHS = FIELDS | {"tenant", "input_length", "output_length"}
_BLOCKS = _LENGTHS | {"blocks"}


def _block_rows(
    lines: Lines, records: Iterator[Record], header: Header, about: About
) -> Iterator[Row]:
    """The requests after the header."""
    if header.requests == LENGTHS:
        about.lengths_only()
    else:
        about.fixed(lines, header.block_size)
        about.partial, about.knows_output = header.partial, header.knows_output
    known = _BLOCKS if about.identity else _LENGTHS
    for index, record in enumerate(records):
        check_fields(lines, record, known)
        after, arrival_ns = arrival(lines, record, index)
        length, output = (
            base.integer(lines, record, field, 1, base.MAX_REQUEST_TOKENS)
            for field in ("input_length", "output_length")
        )
        tokens = length + output if about.knows_output else length
        yield Row(
            arrival_ns,
            length,
            output,
            _ids(lines, record, tokens, about) if about.identity else (),
            name(lines, record, "namespace"),
            after,
            base.text(lines, record, "session") if "session" in record else None,
            priority(lines, record),
            name(lines, record, "tenant"),
        )


def _ids(lines: Lines, record: Record, tokens: int, about: About) -> list[int]:
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


def block_texts(rows: Iterable[Row], about: About, made_by: Record) -> Iterator[str]:
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


_LEAST_RATE, _MOST_RATE = 1e-6, 1e6  # requests per second
_MOST = (1 << 31) - 1
_SENDER = {
    "request_rate",
    "distribution",
    "max_parallel",
    "ready_queue_policy",
    "round_barrier",
    "barrier_pause_ms",
    "seed",
}


def _written(options: SenderOptions) -> Record:
    """The field. Without a rate everything that is ready is sent at once."""
    record: Record = {
        "max_parallel": options.max_parallel,
        "ready_queue_policy": options.policy,
        "round_barrier": options.barrier,
        "barrier_pause_ms": options.pause_ns / base.NS_PER_MS,
        "seed": options.seed,
    }
    if options.gap_ns:
        record["request_rate"] = base.NS_PER_S / options.gap_ns
        record["distribution"] = options.distribution
    return record


def _read_sender(lines: Lines, header: Record) -> SenderOptions | None:
    """The field of a header; None without one. Raises CallerError with the line."""
    if "sender" not in header:
        return None
    found = header["sender"]
    if type(found) is not dict or not found.keys() <= _SENDER:
        known = ", ".join(sorted(_SENDER))
        lines.wrong_field(header, "sender", f"an object with no fields but {known}")
    plain = SenderOptions()
    gap_ns = 0
    if "request_rate" in found:
        rate = found["request_rate"]
        if type(rate) not in (int, float) or not _LEAST_RATE <= rate <= _MOST_RATE:
            expected = f"requests per second, {_LEAST_RATE:g} to {_MOST_RATE:g}"
            lines.wrong_field(found, "request_rate", expected)
        gap_ns = max(1, round(base.NS_PER_S / rate))
    barrier = found.get("round_barrier", plain.barrier)
    if type(barrier) is not bool:
        lines.wrong_field(found, "round_barrier", "true or false")
    pause_ns = 0
    if "barrier_pause_ms" in found:
        pause_ns = base.nanoseconds(lines, found, "barrier_pause_ms")
    return SenderOptions(
        gap_ns=gap_ns,
        distribution=_one_of(lines, found, "distribution", DISTRIBUTIONS, plain.distribution),
        max_parallel=_number(lines, found, "max_parallel", plain.max_parallel),
        policy=_one_of(lines, found, "ready_queue_policy", POLICIES, plain.policy),
        barrier=barrier,
        pause_ns=pause_ns,
        seed=_number(lines, found, "seed", plain.seed),
    )


def _number(lines: Lines, found: Record, field: str, usual: int) -> int:
    return base.integer(lines, found, field, 0, _MOST) if field in found else usual


def _one_of(lines: Lines, found: Record, field: str, known: tuple[str, ...], usual: str) -> str:
    value: Any = found.get(field, usual)
    if value not in known:
        lines.wrong_field(found, field, f"one of {', '.join(known)}")
    return str(value)
