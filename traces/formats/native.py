"""The project's own format: one request a line, its tokens as segments of streams.

docs/formats.md describes it for users. A token is identified by its stream and its offset in the
stream. The output is a segment, too, so a later prompt can contain it and hit it. For what is
converted from formats that cannot express that, there are requests of blocks and of lengths.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.json import Decoder

from sim.workload import Job, SenderOptions

from . import reading
from .base import NS_PER_MS, NS_PER_S, Trace
from .pages import BlockTrace, SegmentTrace
from .reading import About, BlockTokens, Format, Head, Lines, Name, Priority, Row, Time, Tokens

NAME = "hicache-trace"
_Integer = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Rate = Annotated[int, Meta(ge=1, le=10**6)] | Annotated[float, Meta(ge=1e-6, le=1e6)]
_Segment = tuple[str, Tokens]


class Sender(Struct, forbid_unknown_fields=True):
    """How the client of a benchmark sends the requests; see docs/formats.md."""

    request_rate: _Rate | None = None
    distribution: Literal["poisson", "uniform"] = "poisson"
    max_parallel: _Integer = 0
    ready_queue_policy: Literal["random", "fifo"] = "fifo"
    round_barrier: bool = False
    barrier_pause_ms: Time = 0
    seed: _Integer = 0

    def options(self) -> SenderOptions:
        gap_ns = max(1, round(NS_PER_S / self.request_rate)) if self.request_rate else 0
        pause_ns, policy = reading.nanoseconds(self.barrier_pause_ms), self.ready_queue_policy
        how = gap_ns, self.distribution, self.max_parallel, policy, self.round_barrier
        return SenderOptions(*how, pause_ns, self.seed)


class _Header(Struct):
    """The first line; version 1 has requests of segments only."""

    format: Literal["hicache-trace"]
    version: Literal[1, 2]
    sender: Sender | None = None
    requests: Literal["segments", "blocks", "lengths"] = "segments"
    block_size: BlockTokens | None = None
    partial_blocks: bool = True
    output_blocks: bool = False


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """What all requests have. Without timestamp and after, the trace has no times. tenant: is not
    read."""

    timestamp: Time | None = None
    after: int | None = None
    delay: Time | None = None
    namespace: Name = ""
    session: Name = ""
    priority: Priority = 0
    tenant: Name = ""


class _Segments(_Request, kw_only=True):
    input: Annotated[list[_Segment], Meta(min_length=1)]
    output: _Segment


class _Lengths(_Request, kw_only=True):
    input_length: Tokens
    output_length: Tokens


class _Blocks(_Lengths, kw_only=True):
    blocks: list[int | tuple[int, int]]


_KINDS: dict[str, type[Any]] = {"segments": _Segments, "lengths": _Lengths, "blocks": _Blocks}


def recognises(head: Head) -> bool:
    return head.line.startswith("{") and '"format"' in head.line[:200] and NAME in head.line


def rows(lines: Lines, about: About) -> Iterator[Row]:
    each = lines.each()
    header = lines.decoded(Decoder(_Header), next(each))
    about.sender = header.sender.options() if header.sender else None
    about.segments = header.requests == "segments"
    if header.requests != "blocks":
        about.without_blocks(lines)
    elif header.block_size is None:
        lines.wrong("a field block_size", "none", "add it to the first line")
    else:
        about.fixed(lines, header.block_size)
        about.partial, about.knows_output = header.partial_blocks, header.output_blocks
    decoder = Decoder(_KINDS[header.requests])
    for line in each:
        decoded = lines.decoded(decoder, line)
        after, arrival_ns = _arrival(lines, decoded, about.count)
        ids: list[Any] = []
        if about.segments:
            length, output = sum([count for _, count in decoded.input]), decoded.output[1]
            for name, count in (*decoded.input, decoded.output):
                ids.append((about.seen.setdefault(name, len(about.seen)), count))
        else:
            length, output = decoded.input_length, decoded.output_length
            ids = _blocks(lines, decoded, about) if about.identity else []
        rest = decoded.namespace, after, decoded.session or None, decoded.priority
        yield Row(arrival_ns, length, output, ids, *rest)


def _arrival(lines: Lines, request: _Request, index: int) -> tuple[int, int | None]:
    """(after, arrival_ns), as in `Row`."""
    if request.after is None:
        if request.delay is not None:
            lines.wrong("delay only beside after", "delay alone", "add after, or use timestamp")
        return -1, None if request.timestamp is None else reading.nanoseconds(request.timestamp)
    if request.timestamp is not None:
        lines.wrong("either timestamp or after", "both", "remove one of them")
    if not 0 <= request.after < index:
        lines.wrong("after: the number of an earlier request", str(request.after), "count from 0")
    return request.after, reading.nanoseconds(request.delay or 0)


def _blocks(lines: Lines, request: _Blocks, about: About) -> list[int]:
    size = about.block_size
    tokens = request.input_length + request.output_length * about.knows_output
    most = -(-tokens // size) if about.partial else tokens // size
    ids: list[int] = []
    for part in request.blocks:
        if isinstance(part, int):
            ids.append(part)
        elif 1 <= part[1] <= most:
            ids.extend(range(part[0], part[0] + part[1]))
        else:
            lines.wrong(
                f"pairs [id, count] of at most {most}", reading.show(part), "correct the list"
            )
        if len(ids) > most:
            break
    if not tokens // size <= len(ids) <= most:
        text = f"{len(ids)} or more" if len(ids) > most else str(len(ids))
        lines.wrong(f"{most} blocks ({tokens} tokens / {size})", text, "correct the line")
    return ids


FORMAT = Format("segments of token streams, the output's identity included", recognises, rows)


# -- writing


def header(made_by: dict[str, Any], sender: SenderOptions | None = None) -> dict[str, Any]:
    """The first line of a file in this format. made_by: how the file was made. sender: how its
    requests are sent, if not when they arrive."""
    first: dict[str, Any] = {"format": NAME, "version": 1, "made_by": made_by}
    if sender is not None:
        first["sender"] = {
            "max_parallel": sender.max_parallel,
            "ready_queue_policy": sender.policy,
            "round_barrier": sender.barrier,
            "barrier_pause_ms": sender.pause_ns / NS_PER_MS,
            "seed": sender.seed,
        }
        if sender.gap_ns:  # without a rate everything that is ready is sent at once
            rate = {"request_rate": NS_PER_S / sender.gap_ns, "distribution": sender.distribution}
            first["sender"] |= rate
    return first


def texts(trace: Trace, made_by: dict[str, Any]) -> Iterator[str]:
    """The lines of a file with the requests of a trace."""
    first = header(made_by, trace.jobs.sender) | {"version": 2, "requests": "lengths"}
    assert isinstance(trace, BlockTrace | SegmentTrace)
    if isinstance(trace, SegmentTrace):
        first["requests"] = "segments"
    elif trace.identity:
        first |= {"requests": "blocks", "block_size": trace.block_size}
        first |= {"partial_blocks": trace.partial, "output_blocks": trace.knows_output}
    yield json.dumps(first) + "\n"
    for job in trace.jobs:
        yield json.dumps(_fields(trace, job)) + "\n"


def _fields(trace: BlockTrace | SegmentTrace, job: Job) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if job.after >= 0:
        result["after"] = job.after
    if job.arrival_ns if job.after >= 0 else trace.jobs.timed:
        number, rest = divmod(job.arrival_ns, NS_PER_MS)
        result["timestamp" if job.after < 0 else "delay"] = (
            job.arrival_ns / NS_PER_MS if rest else number
        )
    if job.session >= 0:
        result["session"] = f"s{job.session}"
    if job.priority:
        result["priority"] = job.priority
    if isinstance(trace, SegmentTrace):
        if namespace := trace.segments.namespaces[job.index]:
            result["namespace"] = namespace
        *result["input"], result["output"] = ([str(s), n] for s, n in trace.segments.of(job.index))
        return result
    result |= {"input_length": job.input_length, "output_length": job.output_length}
    if trace.identity:
        result["blocks"] = [*_runs(trace.blocks(job).tolist())]
    return result


def _runs(ids: Sequence[int]) -> Iterator[int | list[int]]:
    start, count = 0, len(ids)
    while start < count:
        end = start + 1
        while end < count and ids[end] == ids[end - 1] + 1:
            end += 1
        yield ids[start] if end - start == 1 else [ids[start], end - start]
        start = end
