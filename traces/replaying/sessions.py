"""A trace with more or fewer sessions: so many times those that it has, whole, with their pauses.

All factors of one trace and seed take the beginning of one sequence: the sessions in a random
order, then a copy of each in the same order, then another one, and so on. So a larger factor adds
sessions and changes none. A factor below 1 takes a part of the sessions; from 1 on the trace is
kept, and copies are added. The order is random but for one thing: long and short sessions take
turns so that, wherever the sequence is cut, the tokens are in proportion to within one session.

**Contents.** A copy shares with other sessions what different sessions of the trace share: a page
that requests of two sessions have stays, and the pages after the last such one are new. Copies of
two sessions therefore share exactly what the two share. What a page is depends on the page that it
copies and on the number of the copy alone, not on the factor or the seed.

**Starts.** A copy begins at a point of the trace's own curve of beginnings (how many sessions have
begun by each time) that is drawn uniformly from the part of the curve where the whole session still
ends within the trace, or, if the session is as long as that, before the second session begins. So
copies come when users come, the load keeps the shape of the day, and it does not trail off after
the end of the trace. The pauses within a session stay.

Does not change times of requests that are not copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Key, Pages
from sim.workload import Job

from ..formats.base import (
    MAX_REQUESTS,
    Chosen,
    Jobs,
    Paged,
    PagesWithJobs,
    Trace,
    TraceWithJobs,
    by_prefix,
)

Numbers = NDArray[np.int64]

MOST = 100  # times the sessions of a trace: the number of a copy has 8 bits
_COPY_BIT = 55  # ids of pages and tokens in a trace are below; see formats/_pages
_NOBODY, _SEVERAL = -1, -2
_STREAM = 1  # random numbers that nothing else draws
_FEW = 8  # requests with a common prefix are a session, however short the trace is


@dataclass(frozen=True, slots=True)
class Scale:
    """What was done. sessions: of the trace, and now. tokens: the part of the prompt tokens that
    there are now. named: whether the trace names its sessions."""

    factor: Fraction
    sessions: tuple[int, int]
    tokens: float
    named: bool


def scaled(trace: Trace, jobs: Jobs, factor: Fraction, seed: int) -> tuple[TraceWithJobs, Scale]:
    """The trace with so many times its sessions, rounded to whole ones and one at least. jobs: its
    requests, which may wait for others and arrive at other times. factor: not 1, at most MOST."""
    sessions = sessions_of(trace, jobs)
    count = max(1, int(factor * len(sessions) + Fraction(1, 2)))
    draw = np.random.Generator(np.random.PCG64([seed, len(sessions), _STREAM]))
    order = _order(sessions.tokens, draw)
    same = TraceWithJobs(trace, jobs)
    found: TraceWithJobs
    if factor < 1:
        kept = np.zeros(len(sessions), dtype=np.bool_)
        kept[order[:count]] = True
        found = Chosen(same, np.flatnonzero(kept[sessions.of]))
    else:
        found = _with_copies(same, jobs, sessions, order, count - len(sessions), draw)
    tokens = found.jobs.input_tokens / trace.jobs.input_tokens
    return found, Scale(factor, (len(sessions), count), tokens, sessions.named)


def _order(tokens: Numbers, draw: np.random.Generator) -> Numbers:
    """The sessions in random order: one with more tokens than the mean where those before it have
    less, else one with fewer. So the first m have m times the mean, to within one session."""
    count, total = len(tokens), int(tokens.sum())
    queues: tuple[list[int], list[int]] = [], []
    for session in draw.permutation(count).tolist():
        queues[int(tokens[session]) * count >= total].append(session)
    found, excess = [], 0  # of their tokens, times the number of sessions
    for _ in range(count):
        session = queues[excess <= 0].pop()
        found.append(session)
        excess += int(tokens[session]) * count - total
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Copies:
    """Requests of copies, in columns: all of one copy, then all of the next one.

    numbers: the requests of the trace that they copy. which: the place of their copy in the
    sequence. afters, sessions: as of jobs, counted from the first request of all copies. times_ns:
    when they arrive if none takes time to serve.
    """

    numbers: Numbers
    which: Numbers
    afters: Numbers
    sessions: Numbers
    times_ns: Numbers


def _with_copies(
    trace: Trace,
    jobs: Jobs,
    sessions: Sessions,
    order: Numbers,
    count: int,
    draw: np.random.Generator,
) -> _CopiedTrace:
    """The trace with the first `count` copies of the sequence."""
    chosen = np.resize(order, count)
    starts, begun = _starts(sessions, chosen, draw)
    copies = _copies(jobs, sessions, chosen, starts)
    before = _places(jobs, sessions, copies, begun)
    whole, free = np.arange(len(jobs)), jobs.afters[copies.numbers] < 0
    numbers = np.concatenate((whole, copies.numbers))
    # at one place copies come in the order of their times
    merged = np.lexsort(
        (
            np.arange(len(numbers)),
            np.concatenate((sessions.times_ns, copies.times_ns)),
            np.concatenate((2 * whole + 1, 2 * before)),
        )
    )
    times = np.where(free, copies.times_ns, jobs.arrivals_ns[copies.numbers])
    afters = np.where(copies.afters >= 0, copies.afters + len(jobs), -1)
    firsts = np.where(copies.sessions >= 0, copies.sessions + len(jobs), -1)
    columns = (
        np.concatenate((jobs.arrivals_ns, times)),
        jobs.input_lengths[numbers],
        jobs.output_lengths[numbers],
        np.concatenate((jobs.afters, afters)),
        np.concatenate((jobs.sessions, firsts)),
        jobs.priorities[numbers],
    )
    both = Jobs(*columns)
    number_of = np.concatenate((np.zeros_like(whole), copies.which // len(sessions) + 1))
    return _CopiedTrace(
        trace,
        both.reordered(merged),
        numbers[merged],
        number_of[merged],
        sessions.of,
        order,
    )


def _starts(
    sessions: Sessions, chosen: Numbers, draw: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """When each copy begins, and the last session of the trace that has begun then."""
    starts, last = sessions.starts_ns, len(sessions) - 1
    gaps = np.append(np.diff(starts), 0)
    latest = sessions.ends_ns.max() - (sessions.ends_ns - sessions.starts_ns)[chosen]
    begun = np.searchsorted(starts, latest, "right") - 1
    most = begun + (latest - starts[begun]) / np.maximum(gaps[begun], 1)
    point = draw.random(len(chosen)) * np.clip(most, min(1, last), last)
    begun = point.astype(np.int64)
    return starts[begun] + ((point - begun) * gaps[begun]).astype(np.int64), begun


def _copies(jobs: Jobs, sessions: Sessions, chosen: Numbers, starts: Numbers) -> _Copies:
    members = sessions.requests
    turn = np.zeros(len(jobs), dtype=np.int64)  # in its session
    for requests in members:
        turn[requests] = np.arange(len(requests))
    sizes = np.array([len(members[session]) for session in chosen.tolist()], dtype=np.int64)
    numbers = np.concatenate([np.zeros(0, np.int64), *(members[one] for one in chosen.tolist())])
    which = np.repeat(np.arange(len(chosen)), sizes)
    first = (np.cumsum(sizes) - sizes)[which]
    afters, firsts = jobs.afters[numbers], jobs.sessions[numbers]
    return _Copies(
        numbers,
        which,
        np.where(afters >= 0, first + turn[afters], -1),
        np.where(firsts >= 0, first + turn[firsts], -1),
        sessions.times_ns[numbers] + (starts - sessions.starts_ns[chosen])[which],
    )


def _places(jobs: Jobs, sessions: Sessions, copies: _Copies, begun: Numbers) -> Numbers:
    """The place in the trace before which each request of a copy comes.

    Requests with times of their own stay in the order of these. Where several places are possible,
    a copy comes after the session that has begun last, and its turns follow as soon as they may.
    """
    free = jobs.afters < 0
    arrived = np.maximum.accumulate(np.where(free, jobs.arrivals_ns, 0))
    followed = np.maximum.accumulate(sessions.times_ns)
    times, own = copies.times_ns, free[copies.numbers]
    least = np.where(own, np.searchsorted(arrived, times), np.searchsorted(followed, times))
    most = np.searchsorted(arrived, times, "right")
    first_of = [int(requests[0]) for requests in sessions.requests]
    found: list[int] = []
    copy, last = -1, 0  # last: the place of the last request of this copy with a time of its own
    for place, (which, after, low) in enumerate(
        zip(copies.which.tolist(), copies.afters.tolist(), least.tolist(), strict=True)
    ):
        if which != copy:
            copy, last = which, min(first_of[int(begun[which])] + 1, int(most[place]))
        if after >= 0:
            found.append(max(low, found[after]))
        else:
            last = max(low, last)
            found.append(last)
    return np.array(found, dtype=np.int64)


class _CopiedTrace(TraceWithJobs):
    """A trace with copies of sessions. copies: of each request, the number of its copy; 0 for the
    trace's own. of: the session of each request of the trace. order: of the sessions."""

    def __init__(
        self,
        trace: Trace,
        jobs: Jobs,
        numbers: Numbers,
        copies: Numbers,
        of: Numbers,
        order: Numbers,
    ) -> None:
        super().__init__(trace, jobs, numbers)
        self._copies = copies.astype(np.uint8)
        self._of = of
        self._position = np.argsort(order)

    def paged(self, page_size: int) -> Paged:
        paged = self._trace.paged(page_size)
        return _CopiedPages(
            paged, self.jobs, self.numbers, self._copies, _owners(paged, self._of), self._position
        )


def _owners(paged: Paged, of: Numbers) -> NDArray[np.int32]:
    """The session that has each page, or that several have it."""
    owners = np.zeros(0, dtype=np.int32)
    for job, session in zip(paged.jobs, of.tolist(), strict=True):
        pages = paged.chain(job)
        most = int(pages.max(initial=-1)) + 1
        if most > len(owners):
            more = np.full(max(most, 2 * len(owners)) - len(owners), _NOBODY, dtype=np.int32)
            owners = np.concatenate((owners, more))
        found = owners[pages]
        owners[pages] = np.where((found == _NOBODY) | (found == session), session, _SEVERAL)
    return owners[: int(np.flatnonzero(owners != _NOBODY).max(initial=-1)) + 1]


class _CopiedPages(PagesWithJobs):
    """Such a trace in pages.

    Page ids: those of the trace, then for each copy those of the pages that one session has, in the
    order of the sequence; so those of a cut sequence are dense. Keys: a token or block of a page
    that is new has the number of its copy in its highest bits, and a page that the trace does not
    identify is one of a request of its own.
    """

    def __init__(
        self,
        paged: Paged,
        jobs: Jobs,
        numbers: NDArray[np.int64],
        copies: NDArray[np.uint8],
        owners: NDArray[np.int32],
        position: Numbers,
    ) -> None:
        super().__init__(paged, jobs, numbers)
        self._copies = copies
        self._is_shared = owners == _SEVERAL
        own = np.flatnonzero(owners >= 0)
        own = own[np.argsort(position[owners[own]], kind="stable")]
        self._own = len(own)
        self._ids = np.zeros(len(owners), dtype=np.int64)
        self._ids[own] = len(owners) + np.arange(len(own))
        self._shared = np.full(len(paged.jobs), _NOBODY, dtype=np.int32)  # pages; once asked for

    def key(self, job: Job, length: int) -> Key:
        return self._copied(job, super().key(job, length))

    def prompt_key(self, job: Job) -> Key:
        return self._copied(job, super().prompt_key(job))

    def chain(self, job: Job) -> Pages:
        pages, copy = super().chain(job), int(self._copies[job.index])
        if not copy:
            return pages
        shared = int(self._is_shared[pages].sum())
        return np.concatenate((pages[:shared], self._ids[pages[shared:]] + (copy - 1) * self._own))

    def _copied(self, job: Job, key: Key) -> Key:
        copy, number = int(self._copies[job.index]), int(self._numbers[job.index])
        if not copy:
            return key
        shared = int(self._shared[number])
        if shared == _NOBODY:
            shared = int(self._is_shared[super().chain(job)].sum())
            self._shared[number] = shared
        old = np.frombuffer(key.raw[shared * key.stride :], dtype="<i8")
        row = MAX_REQUESTS - 1 - (copy - 1) * len(self._shared) - number
        unknown = -1 - (row << 32 | shared + np.arange(len(old)))  # one of a page, where there are
        new = np.where(old < 0, unknown, old + (copy << _COPY_BIT)).astype("<i8")
        return Key(key.raw[: shared * key.stride] + new.tobytes(), key.stride, key.namespace)


# -- which requests belong together


@dataclass(frozen=True, slots=True)
class Sessions:
    """What the trace names so, together with the requests that wait for one of its requests. Where
    a trace names no session with two requests, those with a common prefix that few others have are
    one (see formats/_with_jobs); a request without any is a session of its own.

    of: the session of each request; sessions are numbered in the order of their beginnings.

    times_ns: of each request, when it arrives if no request takes time to serve. starts_ns,
    ends_ns: of each session, the least and the most of these times. tokens: of each session,
    prompts and outputs. named: whether the trace says which requests belong together.
    """

    of: Numbers
    times_ns: Numbers
    starts_ns: Numbers
    ends_ns: Numbers
    tokens: Numbers
    named: bool

    def __len__(self) -> int:
        return len(self.starts_ns)

    @property
    def requests(self) -> list[Numbers]:
        """The requests of each session, in order."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.of[order])) + 1)


def sessions_of(trace: Trace, jobs: Jobs) -> Sessions:
    """jobs: the requests of the trace, which may wait for others and arrive at other times."""
    named = _says(trace.jobs)
    roots = list(range(len(jobs)))
    _join(roots, trace.jobs.sessions if named else _firsts(by_prefix(trace, _FEW, alone=True)))
    _join(roots, trace.jobs.afters)
    _join(roots, jobs.afters)
    first, of = np.unique([_root(roots, place) for place in range(len(jobs))], return_inverse=True)
    times = jobs.times_ns
    ends = np.zeros(len(first), dtype=np.int64)
    tokens = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(ends, of, times)
    np.add.at(tokens, of, jobs.input_lengths.astype(np.int64) + jobs.output_lengths)
    return Sessions(of, times, times[first], ends, tokens, named)


def _says(jobs: Jobs) -> bool:
    """Whether a request waits for another, or a session has two requests."""
    sessions = jobs.sessions[jobs.sessions >= 0]
    return bool((jobs.afters >= 0).any()) or len(np.unique(sessions)) < len(sessions)


def _firsts(groups: Numbers) -> Numbers:
    """The first request of each request's group."""
    _, first, which = np.unique(groups, return_index=True, return_inverse=True)
    return first[which]


def _join(roots: list[int], others: NDArray[np.integer[Any]]) -> None:
    """Puts each request together with another one. others: -1 for none."""
    for place in np.flatnonzero(others >= 0).tolist():
        one, other = _root(roots, place), _root(roots, int(others[place]))
        roots[max(one, other)] = min(one, other)


def _root(roots: list[int], place: int) -> int:
    while roots[place] != place:
        roots[place] = roots[roots[place]]
        place = roots[place]
    return place
