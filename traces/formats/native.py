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
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from sim.sending import SenderOptions
from sim.workload import Job

from . import base
from ._pages import BlockTrace, SegmentTrace
from .base import (
    About,
    BlockTokens,
    Format,
    Head,
    Lines,
    Name,
    Priority,
    Record,
    Row,
    Time,
    Tokens,
    Trace,
)

NAME = "hicache-trace"
_Whole = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Rate = Annotated[int, Meta(ge=1, le=10**6)] | Annotated[float, Meta(ge=1e-6, le=1e6)]
_Segment = tuple[str, Tokens]


class Sender(Struct, forbid_unknown_fields=True):
    """How the client of a benchmark sends the requests; see docs/formats.md."""

    request_rate: _Rate | None = None
    distribution: Literal["poisson", "uniform"] = "poisson"
    max_parallel: _Whole = 0
    ready_queue_policy: Literal["random", "fifo"] = "fifo"
    round_barrier: bool = False
    barrier_pause_ms: Time = 0
    seed: _Whole = 0

    def options(self) -> SenderOptions:
        rate = self.request_rate
        return SenderOptions(
            gap_ns=0 if rate is None else max(1, round(base.NS_PER_S / rate)),
            distribution=self.distribution,
            max_parallel=self.max_parallel,
            policy=self.ready_queue_policy,
            barrier=self.round_barrier,
            pause_ns=base.nanoseconds(self.barrier_pause_ms),
            seed=self.seed,
        )


class _First(Struct):
    """What says how the rest of the header is read."""

    format: Literal["hicache-trace"]
    version: Literal[1, 2]


class _Header1(Struct):
    sender: Sender | None = None


class _Header(_Header1, forbid_unknown_fields=True):
    """The first line of version 2."""

    format: str = NAME
    version: int = 2
    made_by: Any = None
    requests: Literal["segments", "blocks", "lengths"] = "segments"
    block_size: BlockTokens | None = None
    partial_blocks: bool = True
    output_blocks: bool = False


class _Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """What all requests have. Without timestamp and after, the trace has no times."""

    timestamp: Time | UnsetType = UNSET
    after: int | UnsetType = UNSET
    delay: Time | UnsetType = UNSET
    namespace: Name = ""
    session: Name | UnsetType = UNSET
    priority: Priority = 0


class _Segments(_Request, kw_only=True):
    input: Annotated[list[_Segment], Meta(min_length=1)]
    output: _Segment


class _Segments2(_Segments, kw_only=True):
    tenant: Name = ""


class _Lengths(_Request, kw_only=True):
    tenant: Name = ""
    input_length: Tokens
    output_length: Tokens


class _Blocks(_Lengths, kw_only=True):
    blocks: list[int | tuple[int, int]]


def recognises(head: Head) -> bool:
    return head.line.startswith("{") and '"format"' in head.line[:200] and NAME in head.line


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    lines = next(about.each(files))
    each = lines.each()
    first = next(each)
    do = f'begin the file with {{"format": "{NAME}", "version": 1}}'
    version = lines.decoded(Decoder(_First), first).version
    if version == 1:
        header = _Header(sender=lines.decoded(Decoder(_Header1), first).sender)
    else:
        header = lines.decoded(Decoder(_Header), first)
    about.sender = header.sender.options() if header.sender else None
    kind: type[Any] = _Segments2 if version > 1 else _Segments
    about.segments = header.requests == "segments"
    if about.segments:
        about.without_blocks(lines, identity=True)
    elif header.requests == "lengths":
        kind = _Lengths
        about.without_blocks(lines)
    else:
        kind = _Blocks
        if header.block_size is None:
            lines.wrong("a field block_size", "none", do)
        about.fixed(lines, header.block_size)
        about.partial, about.knows_output = header.partial_blocks, header.output_blocks
    decoder, streams = Decoder(kind), _Streams()
    ids: Sequence[Any]
    for index, line in enumerate(each):
        request = lines.decoded(decoder, line)
        after, arrival_ns = _arrival(lines, about, request, index)
        if about.segments:
            ids, length, output = _segments(lines, request, streams)
        else:
            length, output = request.input_length, request.output_length
            ids = _blocks(lines, request, about) if about.identity else []
        yield Row(
            arrival_ns,
            length,
            output,
            ids,
            request.namespace,
            after,
            None if request.session is UNSET else request.session,
            request.priority,
            getattr(request, "tenant", ""),
        )


class _Streams(dict[str, int]):
    """A number for each name, in the order of their appearance."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def _arrival(lines: Lines, about: About, request: _Request, index: int) -> tuple[int, int]:
    """(after, arrival_ns), as in `Job`."""
    time, after, delay = request.timestamp, request.after, request.delay
    if after is not UNSET:
        if time is not UNSET:
            lines.wrong("either timestamp or after", "both", "remove one of them")
        if not 0 <= after < index:
            lines.wrong("after: the number of an earlier request", str(after), "count from 0")
        return after, 0 if delay is UNSET else base.nanoseconds(delay)
    if delay is not UNSET:
        lines.wrong("delay only beside after", "delay alone", "add after, or use timestamp")
    if not index:
        about.timed = time is not UNSET
    if about.timed != (time is not UNSET):
        lines.wrong("a timestamp in each request, or in none", "some", "give each request a time")
    return -1, 0 if time is UNSET else base.nanoseconds(time)


def _segments(
    lines: Lines, request: _Segments, streams: _Streams
) -> tuple[list[tuple[int, int]], int, int]:
    """The segments of a prompt and its answer, and the tokens of both."""
    length, output = sum([count for _, count in request.input]), request.output[1]
    if length + output > base.MAX_REQUEST_TOKENS:
        most = base.MAX_REQUEST_TOKENS
        lines.wrong(f"at most {most} tokens in a request", str(length + output), "shorten it")
    pairs = (*request.input, request.output)
    return [(streams[name], count) for name, count in pairs], length, output


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
            lines.wrong(f"pairs [id, count] of at most {most}", base.show(part), "correct the list")
        if len(ids) > most:
            break
    if not tokens // size <= len(ids) <= most:
        found = f"{len(ids)} or more" if len(ids) > most else str(len(ids))
        lines.wrong(f"{most} blocks ({tokens} tokens / {size})", found, "correct the line")
    return ids


FORMAT = Format("segments of token streams, the output's identity included", recognises, rows)


# -- writing


def header(made_by: Record, sender: SenderOptions | None = None) -> Record:
    """The first line of a file in this format. made_by: how the file was made. sender: how its
    requests are sent, if not when they arrive."""
    first: Record = {"format": NAME, "version": 1, "made_by": made_by}
    if sender is None:
        return first
    written: Record = {
        "max_parallel": sender.max_parallel,
        "ready_queue_policy": sender.policy,
        "round_barrier": sender.barrier,
        "barrier_pause_ms": sender.pause_ns / base.NS_PER_MS,
        "seed": sender.seed,
    }
    if sender.gap_ns:  # without a rate everything that is ready is sent at once
        written["request_rate"] = base.NS_PER_S / sender.gap_ns
        written["distribution"] = sender.distribution
    return {**first, "sender": written}


def texts(trace: Trace, made_by: Record) -> Iterator[str]:
    """The lines of a file with the requests of a trace."""
    first = header(made_by, trace.jobs.sender) | {"version": 2, "requests": "lengths"}
    assert isinstance(trace, BlockTrace | SegmentTrace)
    if isinstance(trace, SegmentTrace):
        first["requests"] = "segments"
    elif trace.identity:
        first |= {
            "requests": "blocks",
            "block_size": trace.block_size,
            "partial_blocks": trace.partial,
            "output_blocks": trace.knows_output,
        }
    yield json.dumps(first) + "\n"
    for job in trace.jobs:
        yield f"{{{', '.join(_fields(trace, job))}}}\n"


def _fields(trace: BlockTrace | SegmentTrace, job: Job) -> Iterator[str]:
    if job.after >= 0:
        yield f'"after": {job.after}'
        if job.arrival_ns:
            yield f'"delay": {base.milliseconds(job.arrival_ns)}'
    elif trace.jobs.timed:
        yield f'"timestamp": {base.milliseconds(job.arrival_ns)}'
    if job.session >= 0:
        yield f'"session": "s{job.session}"'
    if tenant := trace.tenant_names[int(trace.tenants[job.index])]:
        yield f'"tenant": {json.dumps(tenant)}'
    if job.priority:
        yield f'"priority": {job.priority}'
    if isinstance(trace, SegmentTrace):
        if namespace := trace.segments.namespace(job.index):
            yield f'"namespace": {json.dumps(namespace)}'
        *prompt, output = (f'["{name}", {count}]' for name, count in trace.segments.of(job))
        yield f'"input": [{", ".join(prompt)}], "output": {output}'
        return
    yield f'"input_length": {job.input_length}, "output_length": {job.output_length}'
    if trace.identity:
        yield f'"blocks": [{", ".join(_runs(trace.blocks(job).tolist()))}]'


def _runs(ids: Sequence[int]) -> Iterator[str]:
    start, count = 0, len(ids)
    while start < count:
        end = start + 1
        while end < count and ids[end] == ids[end - 1] + 1:
            end += 1
        yield str(ids[start]) if end - start == 1 else f"[{ids[start]}, {end - start}]"
        start = end
