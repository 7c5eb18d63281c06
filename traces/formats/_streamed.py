"""A native trace that is read while it is replayed, and never held: each request once, in order.

Lives here: the requests, their keys while they are served, and how much of each prompt an unbounded
cache would hit. Does not know when a request ends; see `forget`.

    stream number   62 bits of a hash of its name, so no table of names is kept
    token id        stream number + offset
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import NO_PAGES, Key, Pages
from sim.workload import Job, ReadOnce

from ._jobs import Jobs
from ._segments import spans
from .base import Paged, Trace
from .native import Request

_MOST_NAMES = 1 << 16
MOST_SEGMENTS = 1 << 19  # that the ceiling remembers at least
_MASK = (1 << 62) - 1


class HashedStreams(dict[str, int]):
    """The number of each stream. Those asked for lately are kept, because a hash takes longer."""

    def __missing__(self, name: str) -> int:
        if len(self) >= _MOST_NAMES:
            self.clear()
        digest = blake2b(name.encode(), digest_size=8).digest()
        number = self[name] = int.from_bytes(digest, "little") & _MASK
        return number


class Ceiling:
    """How many leading tokens of each prompt were seen before, in the order of the trace.

    A segment after the same tokens is known by a hash, with the most tokens of it that a cache
    could hold. The segments asked for last are remembered, `most` of them at least and twice as
    many at most; what repeats a segment that was forgotten counts as first seen. `forgot` says
    whether any was.
    """

    def __init__(self, root: HashedStreams, most: int = 0) -> None:
        self.forgot = False
        self._root = root
        self._most = most or MOST_SEGMENTS
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def seen(self, request: Request) -> int:
        """The leading tokens of the request that were seen, its output included; then it is
        seen itself."""
        young, old = self._young, self._old
        before, seen, matches = self._root[request.namespace], 0, True
        left = len(request.segments)
        for stream, length in request.segments:
            left -= 1
            held = length if left else length - 1  # the last token of an output has no KV
            branch = hash((before, stream))
            known = young.get(branch, -1)
            if known < 0:
                known = old.get(branch, -1)
                young[branch] = max(known, held)
            elif held > known:
                young[branch] = held
            if matches:
                seen += min(length, max(0, known))
                matches = known >= length
            before = hash((branch, length))
        if len(young) >= self._most:
            self.forgot = self.forgot or bool(old)
            self._old, self._young = young, {}
        return seen


class Held(NamedTuple):
    """A request while it is served. Lengths in tokens. ceiling: what an unbounded cache would hit.
    numbers, ends: of its segments, the stream and the token after it."""

    input_length: int
    output_length: int
    ceiling: int
    namespace: str
    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]


class StreamedJobs(Jobs, ReadOnce):
    """The requests of a trace that is read once. There are no columns, so reading one is an
    AttributeError. read: how many were read."""

    def __init__(self, jobs: Iterator[Job], total: int) -> None:
        super().__init__()
        for name, column in list(vars(self).items()):
            if isinstance(column, array):
                delattr(self, name)
        self.read = 0
        self._jobs = jobs
        self._total = total
        self._tokens = 0

    def __iter__(self) -> Iterator[Job]:
        for job in self._jobs:
            self.read += 1
            self._tokens += job.input_length
            yield job

    def __len__(self) -> int:
        """All requests; those that were read, if nobody knows how many there will be."""
        return max(self._total, self.read)

    @property
    def input_tokens(self) -> int:
        """The prompt tokens of the requests that were read."""
        return self._tokens


class StreamedPages:
    """The trace in pages of `page_size` tokens. Only requests that were read and not forgotten have
    keys.

    whole_prompts: whether the last prompt token may hit. room_tokens: the most that a request may
    have. one_by_one: whether a request is forgotten when the next one is read.
    """

    knows_output = True

    def __init__(
        self,
        trace: StreamedTrace,
        page_size: int,
        room_tokens: int,
        whole_prompts: bool,
        one_by_one: bool,
    ) -> None:
        self.page_size = page_size
        self.ceiling = Ceiling(trace.streams)
        self.jobs = StreamedJobs(self._read(trace), trace.total)
        self.prompt_pages = NO_PAGES
        self._room_tokens = room_tokens
        self._whole_prompts = whole_prompts
        self._one_by_one = one_by_one
        self._held: dict[int, Held] = {}
        self._last: tuple[int, Pages] = -1, NO_PAGES

    def held(self, index: int) -> Held:
        return self._held[index]

    def forget(self, index: int) -> None:
        """The request has been served."""
        del self._held[index]

    def key(self, job: Job, length: int) -> Key:
        held = self._held[job.index]
        index, tokens = self._last
        if index != job.index:  # a request is usually asked for several lengths in a row
            tokens = spans(held.numbers, held.ends)
            self._last = job.index, tokens
        if length > len(tokens):
            raise CallerError(
                f"request {job.index}: expected a length within its {len(tokens)} tokens, found "
                f"{length}"
            )
        return Key.from_tokens(tokens[:length], self.page_size, held.namespace)

    def prompt_key(self, job: Job) -> Key:
        return self.key(job, job.input_length)

    def chain(self, job: Job) -> Pages:
        raise NotImplementedError("the pages of a trace that is read once are not numbered")

    def _read(self, trace: StreamedTrace) -> Iterator[Job]:
        for index, one in enumerate(trace.requests()):
            tokens = one.input_length + one.output_length - 1
            if tokens > self._room_tokens:
                raise CallerError(
                    f"{trace.path}: expected requests of at most {self._room_tokens:,} tokens (the "
                    f"device pool), found request {index} with {tokens:,}; enlarge the device pool"
                )
            if one.after >= 0 and not self._whole_prompts:
                raise CallerError(
                    f"{trace.path}: expected requests that arrive at their times, to be read once "
                    f"in timed mode, found request {index} that follows another; write the trace "
                    "to a file and replay it without --stream"
                )
            if self._one_by_one:
                self._held.clear()
            self._held[index] = self._hold(one)
            session = index
            if one.session is not None:
                session = trace.streams[one.session]
            yield Job(
                index,
                one.arrival_ns,
                one.input_length,
                one.output_length,
                one.after,
                session,
                one.priority,
            )

    def _hold(self, one: Request) -> Held:
        size, length = self.page_size, one.input_length
        pages = self.ceiling.seen(one) // size
        most = length // size if self._whole_prompts else (length - 1) // size
        numbers, counts = np.array(one.segments, dtype=np.int64).T
        ceiling = min(pages, most) * size
        return Held(length, one.output_length, ceiling, one.namespace, numbers, np.cumsum(counts))


class StreamedTrace:
    """A native trace of segments that is not held.

    reading: begins to read it, and returns its requests. total: how many there are; 0 if nobody
    knows. sample: its first requests as a trace like any other.
    """

    format = "native"
    identity = True
    block_size = None
    notes = ()
    line_numbers = ()
    tenant_names = ("",)
    tenants: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def __init__(
        self,
        path: str,
        reading: Callable[[HashedStreams], Iterator[Request]],
        total: int,
        sample: Trace,
    ) -> None:
        self.path = path
        self.streams = HashedStreams()
        self.total = total
        self.sample = sample
        self.jobs: Jobs = Jobs()
        self._reading = reading

    def requests(self) -> Iterator[Request]:
        return self._reading(self.streams)

    def paged(self, page_size: int) -> Paged:
        raise NotImplementedError("a trace that is read once has pages while it is replayed")
