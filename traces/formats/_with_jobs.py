"""Traces with other jobs, and a part of a trace: whole groups, chosen by a hash.

A group is what shares cached pages: the requests of a session, and those with a common prefix. The
prefix that names a group is the shortest one that few requests share, so that a system prompt that
everybody has does not make one group of all. The same rate and seed choose the same groups
anywhere, and a group of a small rate is in every larger one.

The part is a shorter trace of the same traffic. With a part p of the prompt tokens it takes p of
the time: a group begins at p of its time, and its requests keep the time between them. What would
come after the end comes at the beginning, as the requests of groups that began before it. So as
many requests come in a second as in the whole trace, at every time, and as many pages of others
come between two uses of a page. A request that waits for another one follows it as before, but for
one that would come after the end.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Key, Pages
from sim.workload import Job

from ._jobs import Jobs
from .base import Measured, Paged, Trace

_FEW = 100  # a group's prefix belongs to at most one of so many requests,
_MOST_FEW = 128  # and to at most so many: conversations have no more turns than that
_PART = 1 << 20  # pages that are looked at at a time
_PAGE = 64  # tokens of a page, where the trace has no blocks
_BITS = 64
_SHOWN_EVERY = 1000


def sampled(
    trace: Trace,
    rate: Fraction,
    seed: int = 0,
    shown: Callable[[int], None] = lambda done: None,
) -> Trace:
    """The requests of the groups whose hash is below `rate`, at times of a shorter trace. shown: is
    called with the number of requests that have a group. Raises CallerError if none is chosen."""
    if rate >= 1:
        return trace
    of = groups(trace, shown)
    chosen = np.flatnonzero(_hash(of, seed) < int(rate * (1 << _BITS)))
    if not len(chosen):
        raise CallerError(
            f"--sample: expected a part with at least one request, found none of "
            f"{len(trace.jobs):,} at {float(rate):g}; give a larger part"
        )
    jobs = trace.jobs
    tokens = jobs.input_lengths[chosen].sum(dtype=np.int64) / max(1, jobs.input_tokens)
    clock, jobs = _shorter(jobs, of, float(tokens))
    order = np.argsort(clock[chosen], kind="stable")
    part = Chosen(TraceWithJobs(trace, jobs), chosen[order])
    part.notes = (
        *trace.notes,
        f"This is a part of the trace (--sample {float(rate):g}), {len(chosen):,} of {len(of):,} "
        "requests, as a shorter trace of the same load: docs/sizing.md says how far its figures "
        "are off.",
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


def groups(trace: Trace, shown: Callable[[int], None] = lambda done: None) -> NDArray[np.int64]:
    """The group of each request; equal numbers are one group."""
    jobs = trace.jobs
    found = by_prefix(trace, shown=shown)
    for place in np.flatnonzero((jobs.afters >= 0) | (jobs.sessions >= 0)).tolist():
        root = jobs.afters[place] if jobs.afters[place] >= 0 else jobs.sessions[place]
        found[place] = found[root]
    return found


def by_prefix(
    trace: Trace,
    least: int = 1,
    alone: bool = False,
    shown: Callable[[int], None] = lambda done: None,
) -> NDArray[np.int64]:
    """The group that its prefix puts each request in. least: so many requests are always few.
    alone: whether a prompt that many requests share to its end is a group of its own."""
    count = len(trace.jobs)
    found = -1 - np.arange(count, dtype=np.int64)
    if trace.identity:
        paged = trace.paged(trace.block_size or _PAGE)
        shared = np.zeros(1, dtype=np.int32)
        for pages in _many(_watched(_prompts(paged), shown, 0)):
            ids, more = np.unique(pages, return_counts=True)
            if ids[-1] >= len(shared):
                shared.resize(int(max(ids[-1] + 1, len(shared) * 9 // 8)), refcheck=False)
            shared[ids] += more
        few = max(least, min(count // _FEW, _MOST_FEW))
        for place, chain in enumerate(_watched(_prompts(paged), shown, count)):
            rare = np.flatnonzero(shared[chain] <= few)
            if len(rare) or (len(chain) and not alone):
                found[place] = chain[rare[0] if len(rare) else -1]
    return found


def _prompts(paged: Paged) -> Iterator[Pages]:
    return (paged.chain(job)[: int(paged.prompt_pages[job.index])] for job in paged.jobs)


def _watched(chains: Iterable[Pages], shown: Callable[[int], None], before: int) -> Iterator[Pages]:
    """The pages of each request, in one of two passes. before: requests of the passes before."""
    for place, chain in enumerate(chains):
        if not place % _SHOWN_EVERY:
            shown((before + place) // 2)
        yield chain


def _many(chains: Iterable[Pages]) -> Iterator[Pages]:
    """The pages of several requests at a time."""
    held: list[Pages] = []
    count = 0
    for chain in chains:
        held.append(chain)
        count += len(chain)
        if count >= _PART:
            yield np.concatenate(held)
            held, count = [], 0
    if held:
        yield np.concatenate(held)


def _hash(values: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """The splitmix64 of each value."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % (1 << _BITS))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed


class TraceWithJobs(Trace):
    """A trace with other jobs: some of its requests, all of them at other times, or several times.
    All else is that of the trace behind it."""

    def __init__(self, trace: Trace, jobs: Jobs) -> None:
        same = trace.line_numbers, trace.tenants, trace.tenant_names, trace.notes, trace.measured
        super().__init__(trace.path, trace.format, jobs, *same)
        self._trace = trace
        self.identity, self.block_size = trace.identity, trace.block_size

    def paged(self, page_size: int) -> Paged:
        return PagesWithJobs(self._trace.paged(page_size), self.jobs)


class PagesWithJobs:
    """Such a trace in pages."""

    def __init__(self, paged: Paged, jobs: Jobs) -> None:
        self._paged = paged
        self.jobs = jobs
        self.page_size, self.knows_output = paged.page_size, paged.knows_output
        self.prompt_pages = paged.prompt_pages

    def key(self, job: Job, length: int) -> Key:
        return self._paged.key(job, length)

    def prompt_key(self, job: Job) -> Key:
        return self._paged.prompt_key(job)

    def chain(self, job: Job) -> Pages:
        return self._paged.chain(job)


class RenumberedTrace(TraceWithJobs):
    """Requests of a trace under numbers of their own. numbers: of each, that in the trace."""

    def __init__(self, trace: Trace, jobs: Jobs, numbers: NDArray[np.int64]) -> None:
        super().__init__(trace, jobs)
        self.numbers = numbers
        self.line_numbers = array("q", [trace.line_numbers[one] for one in numbers.tolist()])
        self.tenants = trace.tenants[numbers]


class RenumberedPages(PagesWithJobs):
    """Such requests in pages. The ids of pages are those of the trace."""

    def __init__(self, paged: Paged, jobs: Jobs, numbers: NDArray[np.int64]) -> None:
        super().__init__(paged, jobs)
        self._numbers = numbers
        self.prompt_pages = paged.prompt_pages[numbers]

    def key(self, job: Job, length: int) -> Key:
        return super().key(self._whole(job), length)

    def prompt_key(self, job: Job) -> Key:
        return super().prompt_key(self._whole(job))

    def chain(self, job: Job) -> Pages:
        return super().chain(self._whole(job))

    def _whole(self, job: Job) -> Job:
        """The request under its number in the trace."""
        return replace(job, index=int(self._numbers[job.index]))


class Chosen(RenumberedTrace):
    """Some requests of a trace, numbered from 0. chosen: their numbers in the whole trace, in the
    order in which they come; with a request, before it, those that it follows."""

    def __init__(self, trace: Trace, chosen: NDArray[np.int64]) -> None:
        super().__init__(trace, trace.jobs.reordered(chosen), chosen)
        self.measured = Measured()

    def paged(self, page_size: int) -> Paged:
        return _ChosenPages(self._trace.paged(page_size), self.jobs, self.numbers)


class _ChosenPages(RenumberedPages):
    """The chosen requests in pages. Ids of pages are dense again."""

    def __init__(self, paged: Paged, jobs: Jobs, chosen: NDArray[np.int64]) -> None:
        super().__init__(paged, jobs, chosen)
        whole = paged.jobs
        chains = (paged.chain(whole[number]) for number in chosen.tolist())
        self._ids = np.unique(np.concatenate([np.unique(pages) for pages in _many(chains)]))

    def chain(self, job: Job) -> Pages:
        return np.searchsorted(self._ids, super().chain(job))
