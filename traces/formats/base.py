"""A trace as the project sees it: its requests in columns, whatever format they were read from.

At the end: a trace with other times, and a part of a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Key, Pages
from sim.workload import Job, SenderOptions, Workload

from ..results.record import Measured

MAX_REQUEST_TOKENS = 1 << 24  # above every published context length; stream offsets fit 24 bits
MAX_REQUESTS = 1 << 31
MAX_BLOCK_TOKENS = 1 << 24
MAX_TIME_MS = 1 << 42  # 139 years; in nanoseconds still below 2**63
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
_LONGEST_NS = 1 << 62
_FEW = 100  # a group's prefix belongs to at most one of so many requests,
_MOST_FEW = 128  # and to at most so many: conversations have no more turns than that
_PART = 1 << 20  # pages that are looked at at a time
_PAGE = 64  # tokens of a page, where the trace has no blocks
_BITS = 64
_NAMES = "arrivals_ns", "input_lengths", "output_lengths", "afters", "sessions", "priorities"
_COLUMNS = dict(zip(_NAMES, "qiiiiq", strict=True))  # types of numpy; as in `Job`


@dataclass(eq=False)
class Jobs(Sequence[Job]):
    """The requests in order, in columns as of `Job`; a `Job` is made when it is looked at.

    sender: how the client of a benchmark sends them; None if each is sent when it arrives. timed:
    whether the trace says when they arrive.
    """

    arrivals_ns: NDArray[np.int64]
    input_lengths: NDArray[np.int32]
    output_lengths: NDArray[np.int32]
    afters: NDArray[np.int32]
    sessions: NDArray[np.int32]
    priorities: NDArray[np.int64]
    sender: SenderOptions | None = None
    timed: bool = True

    def __post_init__(self) -> None:
        for name, kind in _COLUMNS.items():
            setattr(self, name, np.asarray(getattr(self, name), dtype=kind))

    def retimed(self, arrivals_ns: NDArray[np.int64], afters: NDArray[np.int32]) -> Jobs:
        """The same requests with other times, and other requests that they wait for."""
        return replace(self, arrivals_ns=arrivals_ns.copy(), afters=afters.copy())

    def reordered(self, order: NDArray[np.integer[Any]]) -> Jobs:
        """The requests in another order, renumbered; some may be left out. order: of each place,
        the request that comes there; none comes before the one that it waits for."""
        place = np.full(len(self) + 1, -1, dtype=np.int32)  # the last one is of -1
        place[order] = np.arange(len(order))
        first = np.full(len(self) + 1, len(self), dtype=np.int32)  # of each session
        np.minimum.at(first, self.sessions[order], place[order])
        first[-1] = -1
        taken = {name: getattr(self, name)[order] for name in _COLUMNS}
        jobs = replace(self, **taken)
        jobs.afters, jobs.sessions = place[jobs.afters], first[jobs.sessions]
        return jobs

    def spread(self, seed: int = 0) -> None:
        """Requests that arrive at one instant now arrive evenly until the next one, in their order,
        and within the median distance of two instants; with a seed above 0, at random times in that
        time, in their order. Those that wait for another request keep their delays."""
        timed = np.flatnonzero(self.afters < 0)
        arrivals = self.arrivals_ns
        instants, first, which, counts = np.unique(
            arrivals[timed], return_index=True, return_inverse=True, return_counts=True
        )
        if len(instants) < 2:
            return
        apart = np.diff(instants)
        usual = int(np.median(apart))
        gap = np.minimum(np.append(apart, usual), usual)
        if seed:
            draw = np.random.Generator(np.random.PCG64([seed, len(timed)]))
            late = draw.integers(0, np.maximum(gap, 1)[which])
            order = np.lexsort((late, which))
            arrivals[timed] = instants[which] + late[order]
            return
        turn = np.arange(len(timed)) - first[which]
        step, rest = np.divmod(gap, counts)  # turn * room could exceed 64 bits
        arrivals[timed] = instants[which] + turn * step[which] + turn * rest[which] // counts[which]

    def space(self) -> None:
        """Sessions that all begin at one instant now begin evenly, in their order, over the length
        of the longest one: the pauses of its requests. Those that wait for another request keep
        their delays."""
        timed = np.flatnonzero(self.afters < 0)
        pauses = self.retimed(np.where(self.afters >= 0, self.arrivals_ns, 0), self.afters)
        step, rest = divmod(int(pauses.times_ns.max(initial=0)), len(timed))
        turn = np.arange(len(timed))
        self.arrivals_ns[timed] += turn * step + turn * rest // len(timed)

    @property
    def begin_together(self) -> bool:
        """Whether there are several requests that wait for no other, and all have one time."""
        times = self.arrivals_ns[self.afters < 0]
        return len(times) > 1 and bool((times == times[0]).all())

    @property
    def times_ns(self) -> NDArray[np.int64]:
        """When each request arrives if none takes time to serve; at most the longest time of a
        trace."""
        if not (self.afters >= 0).any():
            return np.minimum(self.arrivals_ns, _LONGEST_NS)
        result: dict[int, int] = {}  # by number
        for job in self:
            before_ns = result[job.after] if job.after >= 0 else 0
            result[job.index] = min(job.arrival_ns + before_ns, _LONGEST_NS)
        return np.array(list(result.values()), dtype=np.int64)

    @property
    def input_tokens(self) -> int:
        return int(self.input_lengths.sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.arrivals_ns)

    def __iter__(self) -> Iterator[Job]:
        return map(Job, range(len(self)), *self._values())

    def __getitem__(self, place: int) -> Job:  # type: ignore[override]
        return Job(range(len(self))[place], *(column[place] for column in self._values()))

    def _values(self) -> list[Any]:
        """The columns, whose values are numbers of Python."""
        return [memoryview(getattr(self, name)) for name in _COLUMNS]


class Paged(Workload, Protocol):
    """A trace divided into pages of one size.

    knows_output: whether `key` identifies output tokens, so that a later turn can hit them.
    prompt_pages: the pages of `prompt_key` of each request, by its number in the trace.
    prompt_key: the key of all prompt pages that the trace identifies, a partial last one included.
    chain: int64, one id for each page of `prompt_key` and then of the known output in the cache.
    Ids are small and chained: equal ids mean equal pages after equal prefixes.
    """

    @property
    def jobs(self) -> Jobs: ...

    @property
    def knows_output(self) -> bool: ...

    @property
    def prompt_pages(self) -> Pages: ...

    def prompt_key(self, job: Job) -> Key: ...

    def chain(self, job: Job) -> Pages: ...


@dataclass(eq=False)
class Trace:
    """A trace that was read and checked, for any page size.

    line_numbers: the line of each request; in a document its request, from 1. notes: what reading
    left out or had to assume. identity: whether the file says which prompts begin alike; without it
    there are lengths only, and every prompt is unique. block_size: tokens of a block of the file's
    own ids, None for tokens and lengths. load_rows: (label, value) of what a load made of it.
    """

    path: str
    format: str
    jobs: Jobs
    line_numbers: Sequence[int]
    notes: Sequence[str] = ()
    measured: Measured | None = None
    identity = True
    block_size: int | None = None
    load_rows: Sequence[tuple[str, str]] = ()

    def paged(self, page_size: int) -> Paged:
        """The trace in pages. Raises CallerError if the format does not support the page size."""
        raise NotImplementedError


def need_identity(trace: Trace, what: str) -> None:
    """Raises CallerError if the trace has lengths only. what: the figure that needs more."""
    if not trace.identity:
        raise CallerError(
            f"{trace.path}: {what}: expected a trace that says which prompts begin alike, found "
            f"lengths only ({trace.format}); use one with ids, or replay this with --mode timed"
        )


class TraceWithJobs(Trace):
    """A trace with other jobs: some of its requests, all of them at other times, or several times.
    numbers: of each, its number in the trace behind it, where they are numbered anew."""

    def __init__(self, trace: Trace, jobs: Jobs, numbers: NDArray[np.int64] | None = None) -> None:
        lines = trace.line_numbers
        if numbers is not None:
            lines = np.asarray(lines)[numbers].tolist()
        super().__init__(trace.path, trace.format, jobs, lines, trace.notes, trace.measured)
        self._trace = trace
        self.numbers: Any = numbers
        self.identity, self.block_size = trace.identity, trace.block_size

    def paged(self, page_size: int) -> Paged:
        return PagesWithJobs(self._trace.paged(page_size), self.jobs, self.numbers)


class PagesWithJobs:
    """Such a trace in pages. The ids of pages are those of the trace behind it."""

    def __init__(self, paged: Paged, jobs: Jobs, numbers: NDArray[np.int64] | None = None) -> None:
        self._paged, self.jobs = paged, jobs
        self._numbers: Any = numbers
        self.page_size, self.knows_output = paged.page_size, paged.knows_output
        self.prompt_pages = paged.prompt_pages if numbers is None else paged.prompt_pages[numbers]

    def key(self, job: Job, length: int) -> Key:
        return self._paged.key(self._complete_job(job), length)

    def prompt_key(self, job: Job) -> Key:
        return self._paged.prompt_key(self._complete_job(job))

    def chain(self, job: Job) -> Pages:
        return self._paged.chain(self._complete_job(job))

    def _complete_job(self, job: Job) -> Job:
        """The request under its number in the trace behind it."""
        if self._numbers is None:
            return job
        return replace(job, index=int(self._numbers[job.index]))


class Chosen(TraceWithJobs):
    """Some requests of a trace, numbered from 0. chosen: their numbers in the whole trace, in the
    order in which they come; with a request, before it, those that it follows."""

    def __init__(self, trace: Trace, chosen: NDArray[np.int64]) -> None:
        super().__init__(trace, trace.jobs.reordered(chosen), chosen)
        self.measured = None


def sampled(trace: Trace, rate: Fraction, seed: int = 0) -> Trace:
    """A part of a trace: whole groups, see `groups`, chosen by a hash; those of a small rate are in
    every larger one. Raises CallerError if none is chosen.

    The part is a shorter trace of the same traffic. With a part p of the prompt tokens it takes p
    of the time: a group begins at p of its time, and its requests keep the time between them. What
    would come after the end comes at the beginning, so the load is the same at every time.
    """
    if rate >= 1:
        return trace
    of = groups(trace)
    chosen = np.flatnonzero(_hash(of, seed) < int(rate * (1 << _BITS)))
    if not len(chosen):
        raise CallerError("--sample: expected requests in the part, found none; give more")
    jobs = trace.jobs
    tokens = jobs.input_lengths[chosen].sum(dtype=np.int64) / max(1, jobs.input_tokens)
    clock, jobs = _shorter(jobs, of, float(tokens))
    order = np.argsort(clock[chosen], kind="stable")
    part = Chosen(TraceWithJobs(trace, jobs), chosen[order])
    part.notes = (
        *trace.notes,
        f"This is a part of the trace (--sample {float(rate):g}), {len(chosen):,} of {len(of):,} "
        "requests, as a shorter trace of the same load; docs/sizing.md has its errors.",
    )
    return part


def _shorter(jobs: Jobs, of: NDArray[np.int64], part: float) -> tuple[NDArray[np.int64], Jobs]:
    """The requests as they come in a trace of this part of the length, and when each does if none
    takes time to serve; without times, its place. of: the group of each."""
    clock, afters = jobs.times_ns, jobs.afters
    clock -= clock.min()
    timed = bool(clock.any()) and jobs.sender is None  # a client sends as it does with any trace
    if not timed:
        clock = np.arange(len(jobs))
    _, which = np.unique(of, return_inverse=True)
    starts = np.full(len(clock), clock.max())
    np.minimum.at(starts, which, clock)
    starts = starts[which]
    last = int(clock[afters < 0].max())
    if not last:
        return clock, jobs
    clock += (starts * part).astype(np.int64) - starts
    turn, time = np.divmod(clock, max(1, int(last * part)))
    if not timed:
        return np.where(afters < 0, time, clock), jobs
    free = (afters < 0) | (turn != turn[afters])
    jobs = jobs.retimed(np.where(free, time, jobs.arrivals_ns), np.where(free, -1, afters))
    return jobs.times_ns, jobs


def groups(trace: Trace) -> NDArray[np.int64]:
    """The group of each request: those of a session, and those with a common prefix, the shortest
    that few requests share: a system prompt makes no group."""
    jobs, prefix = trace.jobs, by_prefix(trace)
    roots = np.where(jobs.afters >= 0, jobs.afters, jobs.sessions).tolist()
    for place in np.flatnonzero(np.asarray(roots) >= 0).tolist():
        prefix[place] = prefix[roots[place]]
    return prefix


def by_prefix(trace: Trace, least: int = 1, alone: bool = False) -> NDArray[np.int64]:
    """The group that its prefix puts each request in. least: so many requests are always few.
    alone: whether a prompt that many requests share to its end is a group of its own."""
    count = len(trace.jobs)
    array = -1 - np.arange(count, dtype=np.int64)
    if not trace.identity:
        return array
    paged, few = trace.paged(trace.block_size or _PAGE), max(least, min(count // _FEW, _MOST_FEW))
    shared = np.zeros(1, dtype=np.int32)
    for chains in batches(_prompts(paged), _PART):
        ids, more = np.unique(np.concatenate(chains), return_counts=True)
        if ids[-1] >= len(shared):
            shared.resize(int(max(ids[-1] + 1, len(shared) * 9 // 8)), refcheck=False)
        shared[ids] += more
    for place, chain in enumerate(_prompts(paged)):
        rare = np.flatnonzero(shared[chain] <= few)
        if len(rare) or (len(chain) and not alone):
            array[place] = chain[rare[0] if len(rare) else -1]
    return array


def _prompts(paged: Paged) -> Iterator[Pages]:
    return (paged.chain(job)[: int(paged.prompt_pages[job.index])] for job in paged.jobs)


def batches(chains: Iterable[Pages], pages: int) -> Iterator[list[Pages]]:
    """The chains of consecutive requests, about so many pages at a time."""
    arrays: list[Pages] = []
    count = 0
    for chain in chains:
        arrays.append(chain)
        count += len(chain)
        if count >= pages:
            yield arrays
            arrays, count = [], 0
    if arrays:
        yield arrays


def _hash(values: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """The splitmix64 of each value."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % (1 << _BITS))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed
