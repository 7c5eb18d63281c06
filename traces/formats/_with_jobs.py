"""Traces with other jobs, and a part of a trace: whole groups, chosen by a hash (SHARDS, FAST'15).

A group is what shares cached pages: the requests of a session, and those with a common prefix. The
prefix that names a group is the shortest one that few requests share, so that a system prompt that
everybody has does not make one group of all. The same rate and seed choose the same groups
anywhere, and a group of a small rate is in every larger one. Does not scale capacities or load; see
traces/sizing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Key, Pages
from sim.workload import Job

from ._jobs import Jobs
from .base import Paged, Trace

_FEW = 100  # a group's prefix belongs to at most one of so many requests
_PAGE = 64  # tokens of a page, where the trace has no blocks
_BITS = 64


def sampled(trace: Trace, rate: Fraction, seed: int = 0) -> Trace:
    """The requests of the groups whose hash is below `rate`. Raises CallerError if none is."""
    if rate >= 1:
        return trace
    chosen = np.flatnonzero(_hash(groups(trace), seed) < int(rate * (1 << _BITS)))
    if not len(chosen):
        raise CallerError(
            f"--sample: expected a part with at least one request, found none of "
            f"{len(trace.jobs):,} at {float(rate):g}; give a larger part"
        )
    return Chosen(trace, chosen)


def groups(trace: Trace) -> NDArray[np.int64]:
    """The group of each request; equal numbers are one group."""
    jobs = trace.jobs
    found = by_prefix(trace)
    for place in np.flatnonzero((jobs.afters >= 0) | (jobs.sessions >= 0)).tolist():
        root = jobs.afters[place] if jobs.afters[place] >= 0 else jobs.sessions[place]
        found[place] = found[root]
    return found


def by_prefix(trace: Trace, least: int = 1, alone: bool = False) -> NDArray[np.int64]:
    """The group that its prefix puts each request in. least: so many requests are always few.
    alone: whether a prompt that many requests share to its end is a group of its own."""
    jobs, count = trace.jobs, len(trace.jobs)
    found = -1 - np.arange(count, dtype=np.int64)
    if trace.identity:
        paged = trace.paged(trace.block_size or _PAGE)
        chains = [paged.chain(job)[: int(paged.prompt_pages[job.index])] for job in jobs]
        shared = np.bincount(np.concatenate(chains)) if count else np.zeros(0, dtype=np.int64)
        few = max(least, count // _FEW)
        for place, chain in enumerate(chains):
            rare = np.flatnonzero(shared[chain] <= few)
            if len(rare) or (len(chain) and not alone):
                found[place] = chain[rare[0] if len(rare) else -1]
    return found


def _hash(values: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """The splitmix64 of each value."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % (1 << _BITS))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed


class TraceWithJobs:
    """A trace with other jobs: some of its requests, all of them at other times, or several times.
    All else is that of the trace behind it."""

    notes: Sequence[str]
    line_numbers: Sequence[int]
    tenants: NDArray[np.int32]

    def __init__(self, trace: Trace, jobs: Jobs) -> None:
        self._trace = trace
        self.jobs = jobs
        self.path, self.format, self.notes = trace.path, trace.format, trace.notes
        self.identity, self.block_size = trace.identity, trace.block_size
        self.line_numbers, self.tenants = trace.line_numbers, trace.tenants
        self.tenant_names = trace.tenant_names

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
    """Some requests of a trace, numbered from 0. chosen: their numbers in the whole trace; with a
    request, those that it follows and the first one of its session."""

    def __init__(self, trace: Trace, chosen: NDArray[np.int64]) -> None:
        place_of = np.full(len(trace.jobs) + 1, -1, dtype=np.int64)  # the last one is of -1
        place_of[chosen] = np.arange(len(chosen))
        jobs = Jobs()
        jobs.sender = trace.jobs.sender
        for number in chosen.tolist():
            job = trace.jobs[number]
            jobs.add(
                job.arrival_ns,
                job.input_length,
                job.output_length,
                int(place_of[job.after]),
                int(place_of[job.session]),
                job.priority,
            )
        super().__init__(trace, jobs, chosen)

    def paged(self, page_size: int) -> Paged:
        return _ChosenPages(self._trace.paged(page_size), self.jobs, self.numbers)


class _ChosenPages(RenumberedPages):
    """The chosen requests in pages. Ids of pages are dense again."""

    def __init__(self, paged: Paged, jobs: Jobs, chosen: NDArray[np.int64]) -> None:
        super().__init__(paged, jobs, chosen)
        whole = paged.jobs
        self._ids = np.unique(
            np.concatenate([paged.chain(whole[number]) for number in chosen.tolist()])
        )

    def chain(self, job: Job) -> Pages:
        return np.searchsorted(self._ids, super().chain(job))
