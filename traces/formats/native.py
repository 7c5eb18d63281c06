"""The project's own format: one request a line, its tokens as segments of streams.

docs/formats.md describes it for users. A token is identified by its stream and its offset in the
stream; every segment starts at offset 0. The output is a segment too, so a later prompt can contain
it and hit it. Formats that only have prompt hashes cannot express that.

    token id = stream number << 24 | offset        streams numbered in order of appearance
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import MOST_PRIORITY, Key, Pages
from sim.sender import SenderOptions
from sim.workload import Job

from . import _chains, _sender, base
from ._chains import Chains
from ._jobs import Jobs
from ._tenants import Tenants
from .base import Lines, Record

NAME = "hicache-trace"
VERSION = 1
SUMMARY = "segments of token streams, the output's identity included (docs/formats.md)"

_OFFSET_BITS = 24
_LENGTH_BITS = 25
_MAX_NAME = 256  # characters
_FIELDS = {
    "timestamp",
    "after",
    "delay",
    "namespace",
    "session",
    "tenant",
    "priority",
    "input",
    "output",
}


class Segment(NamedTuple):
    stream: int
    length: int


class Tokens:
    """The tokens of all requests: the segments of each prompt, then the segment of its output.

    A stream after one prefix is a *branch*. The branches and lengths of the segments of request i
    are in `branches` and `lengths` from starts[i] to starts[i + 1]. Equal branches mean equal
    streams after equal tokens. Of each branch: its stream, the token at which it begins, and the
    most tokens of it that a cache holds: the last one of an output has no KV.
    """

    def __init__(self) -> None:
        self.branches = array("i")
        self.lengths = array("i")
        self.starts = array("q", [0])
        self.namespaces: list[str] = []
        self.streams = array("q")
        self.first_tokens = array("i")
        self.longest = array("i")
        self._namespace = array("i")
        self._numbers: dict[str, int] = {}

    def add(self, segments: Sequence[Segment], namespace: str, chains: Chains) -> None:
        """Appends a request. chains: the branches by what is before them."""
        root = self._numbers.setdefault(namespace, len(self._numbers))
        if root == len(self.namespaces):
            self.namespaces.append(namespace)
        self._namespace.append(root)
        before, first = -1 - root, 0
        for left, (stream, length) in zip(range(len(segments))[::-1], segments, strict=True):
            branch = chains.number(before, stream)
            held = length if left else length - 1
            if branch == len(self.streams):
                self.streams.append(stream)
                self.first_tokens.append(first)
                self.longest.append(held)
            elif held > self.longest[branch]:
                self.longest[branch] = held
            self.branches.append(branch)
            self.lengths.append(length)
            before = branch << _LENGTH_BITS | length
            first += length
        self.starts.append(len(self.branches))

    def of(self, index: int) -> Iterator[tuple[int, int]]:
        """(branch, length) of each segment of a request."""
        part = slice(self.starts[index], self.starts[index + 1])
        return zip(self.branches[part], self.lengths[part], strict=True)

    def namespace(self, index: int) -> str:
        return self.namespaces[self._namespace[index]]


SAMPLE = """\
{"format": "hicache-trace", "version": 1}
{"timestamp": 0, "input": [["a", 600]], "output": ["b", 40]}
{"after": 0, "delay": 3, "input": [["a", 600], ["b", 40], ["c", 9]], "output": ["d", 2]}
"""


def header(made_by: Record, sender: SenderOptions | None = None) -> Record:
    """The first line of a file in this format. made_by: how the file was made. sender: how its
    requests are sent, if not when they arrive."""
    first: Record = {"format": NAME, "version": VERSION, "made_by": made_by}
    return first if sender is None else {**first, "sender": _sender.written(sender)}


def recognises(first: Record) -> bool:
    return "format" in first


def read(lines: Lines, limit: int) -> NativeTrace:
    """Reads all requests, or the first `limit`. Raises CallerError with the line."""
    records = iter(lines)
    first = next(records)
    _check_header(lines, first)
    jobs = Jobs()
    jobs.sender = _sender.read(lines, first)
    tokens = Tokens()
    tenants = Tenants()
    chains = Chains("q")
    numbers = array("q")
    streams: dict[str, int] = {}
    sessions: dict[str, int] = {}
    last_ns = 0
    for record in records:
        if not record.keys() <= _FIELDS:
            unknown = next(field for field in record if field not in _FIELDS)
            known = ", ".join(sorted(_FIELDS))
            lines.wrong(f"only the fields {known}", base.show(unknown), "remove it")
        after, arrival_ns = _arrival(lines, record, len(jobs))
        if after < 0:
            base.not_backwards(lines, arrival_ns, last_ns)
            last_ns = arrival_ns
        prompt = _prompt(lines, record, streams)
        output = _segment(lines, record.get("output"), "output", streams)
        length = sum(segment.length for segment in prompt)
        if length + output.length > base.MAX_REQUEST_TOKENS:
            lines.wrong(
                f"at most {base.MAX_REQUEST_TOKENS} tokens in a request",
                str(length + output.length),
                "shorten the request",
            )
        try:
            tokens.add((*prompt, output), _namespace(lines, record), chains)
        except OverflowError:
            lines.wrong(f"at most {_chains.MOST} different segments", "more", "split the trace")
        session = _session(lines, record, after, jobs, sessions)
        priority = 0
        if "priority" in record:
            priority = base.integer(lines, record, "priority", -MOST_PRIORITY, MOST_PRIORITY)
        jobs.add(arrival_ns, length, output.length, after, session, priority)
        tenants.add(_text(lines, record, "tenant") if "tenant" in record else "")
        numbers.append(lines.number)
        if len(jobs) == limit:
            break
    if not jobs:
        lines.wrong("a request after the header", "the end of the file", "add requests")
    return NativeTrace(lines.path, jobs, numbers, tokens, tenants)


def _check_header(lines: Lines, record: Record) -> None:
    do = f'begin the file with {{"format": "{NAME}", "version": {VERSION}}}'
    if record.get("format") != NAME:
        lines.wrong_field(record, "format", f'"{NAME}"', do)
    if type(record.get("version")) is not int or record["version"] != VERSION:
        lines.wrong_field(record, "version", str(VERSION), do)


def _arrival(lines: Lines, record: Record, index: int) -> tuple[int, int]:
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


def _namespace(lines: Lines, record: Record) -> str:
    return _text(lines, record, "namespace") if "namespace" in record else ""


def _session(lines: Lines, record: Record, after: int, jobs: Jobs, sessions: dict[str, int]) -> int:
    """The session that the request names, or that of the request before it, or a new one."""
    if "session" in record:
        return sessions.setdefault(_text(lines, record, "session"), len(jobs))
    return jobs[after].session if after >= 0 else len(jobs)


def _text(lines: Lines, record: Record, field: str) -> str:
    text = record[field]
    if type(text) is not str or len(text) > _MAX_NAME:
        lines.wrong_field(record, field, f"text of at most {_MAX_NAME} characters")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        lines.wrong_field(record, field, "text without lone surrogates")
    return str(text)


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
    return Segment(streams.setdefault(name, len(streams)), length)


class NativeTrace:
    """Requests as segments. Segments are expanded to tokens when a key is asked for."""

    format = "native"
    identity = True
    block_size = None

    def __init__(
        self,
        path: str,
        jobs: Jobs,
        line_numbers: Sequence[int],
        tokens: Tokens,
        tenants: Tenants,
    ) -> None:
        self.path = path
        self.jobs = jobs
        self.line_numbers = line_numbers
        self.tokens = tokens
        self._tenants = tenants

    @property
    def tenants(self) -> NDArray[np.int32]:
        return self._tenants.numbers

    @property
    def tenant_names(self) -> tuple[str, ...]:
        return self._tenants.names

    def paged(self, page_size: int) -> NativePages:
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}; use 64")
        return NativePages(self, page_size)


class NativePages:
    """The trace in pages of `page_size` tokens.

    A page belongs to the branch in which it ends. The pages of branch b have the ids from
    `_first_ids[b]` on, so that equal ids mean equal pages after equal prefixes.
    """

    knows_output = True

    def __init__(self, trace: NativeTrace, page_size: int) -> None:
        self.page_size = page_size
        self.jobs = trace.jobs
        self._tokens = tokens = trace.tokens
        first = np.asarray(tokens.first_tokens)
        pages = (first + np.asarray(tokens.longest)) // page_size - first // page_size
        self._first_ids = np.cumsum(pages, dtype=np.int64) - pages

    def key(self, job: Job, length: int) -> Key:
        tokens = self._tokens
        spans = []
        left = length
        for branch, whole in tokens.of(job.index):
            count = min(whole, left)
            first = tokens.streams[branch] << _OFFSET_BITS
            spans.append(np.arange(first, first + count, dtype=np.int64))
            left -= count
            if not left:
                break
        if left:
            raise CallerError(
                f"request {job.index}: expected a length within its "
                f"{job.input_length + job.output_length} tokens, found {length}"
            )
        return Key.from_tokens(np.concatenate(spans), self.page_size, tokens.namespace(job.index))

    def prompt_key(self, job: Job) -> Key:
        return self.key(job, job.input_length)

    def chain(self, job: Job) -> Pages:
        size, covered, spans = self.page_size, 0, []
        last = job.input_length + job.output_length - 1
        for branch, length in self._tokens.of(job.index):
            pages = min(covered + length, last) // size - covered // size
            first = self._first_ids[branch]
            spans.append(np.arange(first, first + pages, dtype=np.int64))
            covered += length
        return np.concatenate(spans)
