"""When requests arrive: load models, closed loops, turns of conversations, more or fewer sessions;
and the limits that a request must keep. docs/replay.md explains all of it.

The requests of a trace, their order and what they ask for stay as they are, apart from sessions
that are added or left out. Delays after the end of another request are in its job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Key, Pages
from sim.workload import Job

from ..formats.base import (
    MAX_REQUESTS,
    MAX_TIME_MS,
    NS_PER_MS,
    Chosen,
    Jobs,
    Paged,
    PagesWithJobs,
    Trace,
    TraceWithJobs,
    by_prefix,
)

RECORDED = "recorded"
SPREAD = "spread"  # as recorded, but those of one instant arrive until the next
NS_PER_S = 1_000_000_000
MOST_SCALE = 100  # times the sessions of a trace: the number of a copy has 8 bits
_UNITS = (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))
_NOBODY, _SEVERAL = -1, -2
Times: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.int64]
Draw: TypeAlias = np.random.Generator


def spelled(time_ns: int) -> str:
    """A time with the largest unit of which it is a whole number: 50ms."""
    unit, size = next(pair for pair in _UNITS if not time_ns % pair[1])
    return f"{time_ns // size}{unit}"


# -- limits


class Slo(NamedTuple):
    """Limits in nanoseconds; None where there is no limit. A request with one output token has
    neither tpot nor itl, and keeps both."""

    ttft_ns: int | None = None  # to the first token
    tpot_ns: int | None = None  # per token after it, the mean of the request
    itl_ns: int | None = None  # the 99th percentile of the times between two of its tokens
    e2e_ns: int | None = None  # from arrival to the last token

    def __str__(self) -> str:
        return ",".join(f"{name}={spelled(limit)}" for name, limit in self.limits)

    @property
    def limits(self) -> list[tuple[str, int]]:
        """The limits that were given, by name."""
        each = zip(NAMES, self, strict=True)
        return [(name, limit) for name, limit in each if limit is not None]


NAMES = tuple(field.removesuffix("_ns") for field in Slo._fields)


# -- models of arrivals


class Model(NamedTuple):
    """arrivals: takes the times of the trace (one at least), the requests per second on average (0
    if none was given and none is needed), a coefficient of variation, and a generator; returns the
    arrival of each request in nanoseconds, in order. cv: its default, None for a model without
    one."""

    arrivals: Callable[[Times, float, float, Draw], Times]
    needs_rate: bool = True
    cv: float | None = None


def from_gaps(gaps_s: NDArray[np.float64]) -> Times:
    """The first request at 0, and each of the others so long after the one before it."""
    ends = np.cumsum(np.rint(gaps_s * NS_PER_S).astype(np.int64))
    return np.concatenate((np.zeros(1, dtype=np.int64), ends))


def _recorded(recorded: Times, rate_per_s: float, cv: float, draw: Draw) -> Times:
    span_ns = int(recorded[-1] - recorded[0])
    if not rate_per_s or not span_ns:
        return recorded
    wanted_ns = (len(recorded) - 1) * NS_PER_S / rate_per_s
    stretched: NDArray[np.float64] = (recorded - recorded[0]) * (wanted_ns / span_ns)
    return np.rint(stretched).astype(np.int64)


def _gamma(recorded: Times, rate_per_s: float, cv: float, draw: Draw) -> Times:
    """The coefficient of variation (CV) is the standard deviation of the gaps over their mean: 1 is
    a Poisson process, 0 an even distance. vLLM's and SGLang's `--burstiness` is the shape."""
    count, mean_s = len(recorded) - 1, 1 / rate_per_s
    if not cv:
        return from_gaps(np.full(count, mean_s))
    shape = 1 / cv**2
    return from_gaps(draw.gamma(shape, mean_s / shape, count))


# gamma: with a coefficient of variation above 1 bursty; poisson: as of many independent users
MODELS = {
    "at-once": Model(lambda recorded, rate, cv, draw: np.zeros_like(recorded), needs_rate=False),
    "gamma": Model(_gamma, cv=2.0),
    "poisson": Model(
        lambda recorded, rate, cv, draw: from_gaps(draw.exponential(1 / rate, len(recorded) - 1))
    ),
    RECORDED: Model(_recorded, needs_rate=False),
    "uniform": Model(_gamma),
}


class Arrivals(NamedTuple):
    """A load model. cv: None for its default, or where it has none."""

    name: str = RECORDED
    cv: float | None = None

    def __str__(self) -> str:
        return self.name if self.cv is None else f"{self.name}:cv={self.cv:g}"


_AS_RECORDED = Arrivals()


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """When requests arrive. timed: by a clock. request_rate: None for that of the trace.
    concurrency: 0 for arrivals at their times. spread: requests of one instant, until the next.
    scale_sessions: times the sessions of the trace."""

    timed: bool = True
    arrivals: Arrivals = _AS_RECORDED
    request_rate: Fraction | None = None
    concurrency: int = 0
    closed_loop: bool = False
    spread: bool = False
    scale_sessions: Fraction = Fraction(1)
    seed: int = 0

    @property
    def drawn(self) -> bool:
        """Whether the requests arrive at other times than those of the trace."""
        return self.arrivals.name != RECORDED or self.request_rate is not None


# -- a trace under a load


def loaded(load: LoadSettings, trace: Trace) -> Trace:
    """The trace as its requests arrive under this load; the trace itself if that changes nothing.

    Raises CallerError for an option that this trace has no use for.
    """
    jobs, full, notes, rows = trace.jobs, trace.jobs, [], []
    if jobs.sender is not None:
        _check_sender(load, trace)
    if load.timed and not (jobs.timed or load.concurrency or load.request_rate):
        raise CallerError(
            f"{trace.path}: expected times of arrival, found none; give --request-rate with "
            "--arrivals poisson, or --concurrency, or --mode hits"
        )
    if load.spread:
        jobs = jobs.retimed(jobs.arrivals_ns, jobs.afters)
        jobs.spread(load.seed)
    if load.closed_loop:
        jobs = _closed(trace, jobs)
    if _are_spaced(load, jobs):
        jobs = jobs.retimed(jobs.arrivals_ns, jobs.afters)
        jobs.space()
        if load.spread and load.seed:
            jobs.spread(load.seed)
        times = jobs.arrivals_ns[jobs.afters < 0]
        apart_s = float(times[-1] - times[0]) / (len(times) - 1) / NS_PER_S
        notes.append(
            f"{len(times):,} sessions of {len(jobs):,} requests begin at one instant of the trace. "
            f"They are played as if they began {apart_s:,.1f} s apart, evenly over the pauses of "
            "the longest one; --arrivals at-once lets them begin together."
        )
    if load.scale_sessions != 1:
        trace, sessions = scaled(trace, jobs, load.scale_sessions, load.seed)
        jobs, tokens = trace.jobs, trace.jobs.input_tokens / full.input_tokens
        rows.append(("sessions", f"{sessions}, {tokens:.3g} x the prompt tokens"))
    if load.closed_loop:
        waiting = f"{int((jobs.afters >= 0).sum()):,} of {len(jobs):,} requests wait"
        rows.append(("closed loop", f"{waiting} for the one before in their session"))
    if load.drawn:
        jobs = _arriving(trace, jobs, load)
    if jobs is full:
        return trace
    result = TraceWithJobs(trace, jobs)
    result.notes, result.load_rows = (*trace.notes, *notes), rows
    return result


def _are_spaced(load: LoadSettings, jobs: Jobs) -> bool:
    """Whether sessions that begin together begin evenly instead: always, unless the user says when
    they begin, or nothing says how long they are."""
    if not load.timed or load.drawn or load.concurrency or jobs.sender is not None:
        return False
    return jobs.begin_together and bool(jobs.arrivals_ns[jobs.afters >= 0].any())


def _check_sender(load: LoadSettings, trace: Trace) -> None:
    """Raises CallerError for an option that the client of the trace would not read."""
    for name, value in (
        ("concurrency", load.concurrency),
        ("arrivals", load.arrivals.name != RECORDED),
        ("request-rate", load.request_rate),
        ("scale-sessions", load.scale_sessions != 1),
    ):
        if value:
            raise CallerError(
                f"--{name}: expected a trace whose requests arrive at their times, found "
                f"{trace.path}, which says how its client sends them; leave it out"
            )


def _closed(trace: Trace, jobs: Jobs) -> Jobs:
    """Each turn of a session follows the turn before it, after the time between their arrivals."""
    afters, times = jobs.afters.copy(), jobs.arrivals_ns.copy()
    free, before = afters < 0, by_session(jobs)
    # a request that follows another one has no time of its own, and the next turn no gap to it
    chained = free & (before >= 0)
    if not chained.any() and free.all():
        raise CallerError(
            f"--closed-loop: expected a trace with sessions, found none in {trace.path}; leave it "
            "out, or give --concurrency"
        )
    earlier = before[chained]
    gaps = np.where(free[earlier], jobs.arrivals_ns[chained] - jobs.arrivals_ns[earlier], 0)
    afters[chained], times[chained] = earlier, np.maximum(gaps, 0)
    return jobs.retimed(times, afters)


def _arriving(trace: Trace, jobs: Jobs, load: LoadSettings) -> Jobs:
    """The requests that follow no other arrive as a load model says."""
    name, cv = load.arrivals
    model = MODELS[name]
    free = np.flatnonzero(jobs.afters < 0)
    recorded = jobs.arrivals_ns[free]
    rate = float(load.request_rate or 0)
    span_ns = int(recorded[-1] - recorded[0])
    if not span_ns and (not rate if model.needs_rate else name == RECORDED):
        raise CallerError(
            f"{trace.path}: expected requests that arrive at different times, found one time for "
            f"{len(free)}; give --request-rate and --arrivals poisson, or another model"
        )
    if model.needs_rate and not rate:
        rate = (len(free) - 1) * NS_PER_S / span_ns
    draw = np.random.Generator(np.random.PCG64([load.seed, len(free)]))
    times = jobs.arrivals_ns.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # looked at below
        drawn = model.arrivals(recorded, rate, (model.cv or 0.0) if cv is None else cv, draw)
    # a time beyond 64 bits is one before the others
    if (drawn[1:] < drawn[:-1]).any() or not 0 <= drawn[-1] <= MAX_TIME_MS * NS_PER_MS:
        raise CallerError(
            f"{trace.path}: expected requests that arrive within {MAX_TIME_MS // 1000:,} s, found "
            f"later ones with --arrivals {load.arrivals}; give a higher --request-rate"
        )
    times[free] = drawn
    return jobs.retimed(times, jobs.afters)


# -- turns of conversations


def by_session(jobs: Jobs) -> NDArray[np.int32]:
    """The request before each one in its session; -1 for the first one, or without a session."""
    sessions = jobs.sessions
    full = np.full(len(jobs), _NOBODY, dtype=np.int32)
    order = np.argsort(sessions, kind="stable")
    same = (sessions[order][1:] == sessions[order][:-1]) & (sessions[order][1:] >= 0)
    full[order[1:][same]] = order[:-1][same]
    return full


# -- more or fewer sessions
#
# All factors of one trace and seed take the beginning of one sequence: the sessions in a random
# order, then a copy of each in the same order, and so on. A factor below 1 takes a part of the
# sessions; from 1 on the trace is kept, and copies are added. Long and short sessions take turns,
# so that the tokens are in proportion to within one session, wherever the sequence is cut.
#
# A copy shares with other sessions what different sessions of the trace share: a page that two
# sessions have stays, and the pages after the last such one are new. It begins at a point of the
# trace's own curve of beginnings, drawn where the whole session still ends within the trace, or
# before the second session begins. So the load keeps the shape of the day. Pauses stay.

_COPY_BIT = 55  # ids of pages and tokens in a trace are below; see formats/pages
_STREAM = 1  # random numbers that nothing else draws
_FEW = 8  # requests with a common prefix are a session, however short the trace is


def scaled(trace: Trace, jobs: Jobs, factor: Fraction, seed: int) -> tuple[TraceWithJobs, str]:
    """The trace with so many times its sessions, rounded to whole ones and one at least, and how
    many these are. jobs: its requests, which may wait for others and arrive at other times. factor:
    not 1, at most MOST_SCALE."""
    sessions = sessions_of(trace, jobs)
    count = max(1, int(factor * len(sessions) + Fraction(1, 2)))
    draw = np.random.Generator(np.random.PCG64([seed, len(sessions), _STREAM]))
    order = _order(sessions.tokens, draw)
    same = TraceWithJobs(trace, jobs)
    trace_with_jobs: TraceWithJobs
    if factor < 1:
        chosen = np.isin(sessions.of, order[:count])
        trace_with_jobs = Chosen(same, np.flatnonzero(chosen))
    else:
        trace_with_jobs = _with_copies(same, jobs, sessions, order, count - len(sessions), draw)
    return trace_with_jobs, f"{count:,} instead of {len(sessions):,}"


def _order(tokens: Numbers, draw: Draw) -> Numbers:
    """The sessions in random order: one with more tokens than the mean where those before it have
    less, else one with fewer."""
    count, total = len(tokens), int(tokens.sum())
    queues: tuple[list[int], list[int]] = [], []
    for session in draw.permutation(count).tolist():
        queues[int(tokens[session]) * count >= total].append(session)
    numbers, excess = [], 0  # of their tokens, times the number of sessions
    for _ in range(count):
        session = queues[excess <= 0].pop()
        numbers.append(session)
        excess += int(tokens[session]) * count - total
    return np.array(numbers, dtype=np.int64)


def _with_copies(
    trace: Trace, jobs: Jobs, sessions: Sessions, order: Numbers, count: int, draw: Draw
) -> _CopiedTrace:
    """The trace with the first `count` copies of the sequence."""
    chosen = np.resize(order, count)
    starts, begun = _starts(sessions, chosen, draw)
    members = sessions.requests
    turn = np.zeros(len(jobs), dtype=np.int64)  # in its session
    for requests in members:
        turn[requests] = np.arange(len(requests))
    sizes = np.array([len(members[session]) for session in chosen.tolist()], dtype=np.int64)
    # of each request of a copy: the request that it copies, and the place of its copy
    copied = np.concatenate([np.zeros(0, np.int64), *(members[item] for item in chosen.tolist())])
    which = np.repeat(np.arange(count), sizes)
    first = (np.cumsum(sizes) - sizes)[which]
    afters, names = (
        np.where(column[copied] >= 0, first + turn[column[copied]], -1)
        for column in (jobs.afters, jobs.sessions)
    )
    times = sessions.times_ns[copied] + (starts - sessions.starts_ns[chosen])[which]
    before = _places(jobs, sessions, copied, which, afters, times, begun)
    full, free = np.arange(len(jobs)), jobs.afters[copied] < 0
    numbers = np.concatenate((full, copied))
    # at one place copies come in the order of their times
    merged = np.lexsort(
        (
            np.arange(len(numbers)),
            np.concatenate((sessions.times_ns, times)),
            np.concatenate((2 * full + 1, 2 * before)),
        )
    )
    columns = (
        np.concatenate((jobs.arrivals_ns, np.where(free, times, jobs.arrivals_ns[copied]))),
        jobs.input_lengths[numbers],
        jobs.output_lengths[numbers],
        np.concatenate((jobs.afters, np.where(afters >= 0, afters + len(jobs), -1))),
        np.concatenate((jobs.sessions, np.where(names >= 0, names + len(jobs), -1))),
        jobs.priorities[numbers],
    )
    both = Jobs(*columns)
    copies = np.concatenate((np.zeros_like(full), which // len(sessions) + 1))
    both = both.reordered(merged)
    return _CopiedTrace(trace, both, numbers[merged], copies[merged], sessions.of, order)


def _starts(sessions: Sessions, chosen: Numbers, draw: Draw) -> tuple[Numbers, Numbers]:
    """When each copy begins, and the last session of the trace that has begun then."""
    starts, last = sessions.starts_ns, len(sessions) - 1
    gaps = np.append(np.diff(starts), 0)
    latest = sessions.ends_ns.max() - (sessions.ends_ns - sessions.starts_ns)[chosen]
    begun = np.searchsorted(starts, latest, "right") - 1
    most = begun + (latest - starts[begun]) / np.maximum(gaps[begun], 1)
    point = draw.random(len(chosen)) * np.clip(most, min(1, last), last)
    begun = point.astype(np.int64)
    return starts[begun] + ((point - begun) * gaps[begun]).astype(np.int64), begun


def _places(
    jobs: Jobs,
    sessions: Sessions,
    copied: Numbers,
    which: Numbers,
    afters: Numbers,
    times: Times,
    begun: Numbers,
) -> Numbers:
    """The place in the trace before which each request of a copy comes.

    Requests with times of their own stay in the order of these. Where several places are possible,
    a copy comes after the session that has begun last, and its turns follow as soon as they may.
    """
    free = jobs.afters < 0
    arrived = np.maximum.accumulate(np.where(free, jobs.arrivals_ns, 0))
    followed = np.maximum.accumulate(sessions.times_ns)
    own = free[copied]
    least = np.where(own, np.searchsorted(arrived, times), np.searchsorted(followed, times))
    most = np.searchsorted(arrived, times, "right")
    first_of = [int(requests[0]) for requests in sessions.requests]
    numbers: list[int] = []
    copy, last = -1, 0  # last: the place of the last request of this copy with a time of its own
    rows = zip(which.tolist(), afters.tolist(), least.tolist(), strict=True)
    for place, (number, after, low) in enumerate(rows):
        if number != copy:
            copy, last = number, min(first_of[int(begun[number])] + 1, int(most[place]))
        if after >= 0:
            numbers.append(max(low, numbers[after]))
        else:
            last = max(low, last)
            numbers.append(last)
    return np.array(numbers, dtype=np.int64)


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
        self.copies, self.of = copies.astype(np.uint8), of
        self.position = np.argsort(order)

    def paged(self, page_size: int) -> Paged:
        return _CopiedPages(self._trace.paged(page_size), self)


def _owners(paged: Paged, of: Numbers) -> NDArray[np.int32]:
    """The session that has each page, or that several have it."""
    owners = np.zeros(0, dtype=np.int32)
    for job, session in zip(paged.jobs, of.tolist(), strict=True):
        pages = paged.chain(job)
        most = int(pages.max(initial=-1)) + 1
        if most > len(owners):
            more = np.full(max(most, 2 * len(owners)) - len(owners), _NOBODY, dtype=np.int32)
            owners = np.concatenate((owners, more))
        owner = owners[pages]
        owners[pages] = np.where((owner == _NOBODY) | (owner == session), session, _SEVERAL)
    return owners[: int(np.flatnonzero(owners != _NOBODY).max(initial=-1)) + 1]


class _CopiedPages(PagesWithJobs):
    """Such a trace in pages.

    Page ids: those of the trace, then for each copy those of the pages that one session has, in the
    order of the sequence; so those of a cut sequence are dense. Keys: a token or block of a page
    that is new has the number of its copy in its highest bits, and a page that the trace does not
    identify is one of a request of its own.
    """

    def __init__(self, paged: Paged, trace: _CopiedTrace) -> None:
        super().__init__(paged, trace.jobs, trace.numbers)
        self._copies, owners = trace.copies, _owners(paged, trace.of)
        self._is_shared = owners == _SEVERAL
        own = np.flatnonzero(owners >= 0)
        own = own[np.argsort(trace.position[owners[own]], kind="stable")]
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


@dataclass(frozen=True, slots=True)
class Sessions:
    """Which requests belong together: what the trace names so, with the requests that wait for one
    of them. Where it names no session with two requests, those with a common prefix that few others
    have are one; a request without any is a session of its own.

    of: the session of each request, in the order of their beginnings. times_ns: of each request,
    when it arrives if none takes time to serve. starts_ns, ends_ns: the least and the most of these
    of each session. tokens: of each session, prompts and outputs.
    """

    of: Numbers
    times_ns: Times
    starts_ns: Times
    ends_ns: Times
    tokens: Numbers

    def __len__(self) -> int:
        return len(self.starts_ns)

    @property
    def requests(self) -> list[Numbers]:
        """The requests of each session, in order."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.of[order])) + 1)


def sessions_of(trace: Trace, jobs: Jobs) -> Sessions:
    """jobs: the requests of the trace, which may wait for others and arrive at other times."""
    names = trace.jobs.sessions[trace.jobs.sessions >= 0]
    named = bool((trace.jobs.afters >= 0).any()) or len(np.unique(names)) < len(names)
    together: NDArray[np.integer[Any]] = trace.jobs.sessions
    if not named:  # the first request of each one's group
        groups = by_prefix(trace, _FEW, alone=True)
        _, begins, which = np.unique(groups, return_index=True, return_inverse=True)
        together = begins[which]
    roots = list(range(len(jobs)))
    for others in (together, trace.jobs.afters, jobs.afters):
        for place in np.flatnonzero(others >= 0).tolist():
            root, other = _root(roots, place), _root(roots, int(others[place]))
            roots[max(root, other)] = min(root, other)
    first, of = np.unique([_root(roots, place) for place in range(len(jobs))], return_inverse=True)
    times = jobs.times_ns
    ends, tokens = np.zeros((2, len(first)), dtype=np.int64)
    np.maximum.at(ends, of, times)
    np.add.at(tokens, of, jobs.input_lengths.astype(np.int64) + jobs.output_lengths)
    return Sessions(of, times, times[first], ends, tokens)


def _root(roots: list[int], place: int) -> int:
    while roots[place] != place:
        roots[place] = roots[roots[place]]
        place = roots[place]
    return place
