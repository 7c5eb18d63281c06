"""When requests arrive: load models, closed loops, think times, turns of conversations; and the
limits that a request must keep. docs/load.md explains all of it.

The requests of a trace, their order and what they ask for stay as they are, apart from sessions
that are added or left out (see sessions). Delays after the end of another request are in its job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Pages
from sim.workload import Job

from ..formats.base import MAX_TIME_MS, NS_PER_MS, Jobs, Paged, Trace, TraceWithJobs
from .sessions import Scale, scaled

RECORDED = "recorded"
NS_PER_S = 1_000_000_000
MOST_BRANCHES = 8  # different pages that may follow the end of a turn
_MOST_LOOKS = 8  # prompts with the same whole pages
_PAGE = 16  # tokens; to compare prompts of a trace that has no blocks
_UNITS = (("s", NS_PER_S), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))
_NOBODY = -1
Times = NDArray[np.int64]
Numbers = NDArray[np.int32]
Kept = NDArray[np.bool_]


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


@dataclass(frozen=True, slots=True)
class Served:
    """What the limits are about, of each finished request. ttft_ns: to its first token; decode_ns:
    from there to its last one. output_tokens: at least 1. slower: how many of the times between its
    tokens are longer than a limit."""

    ttft_ns: Times
    decode_ns: Times
    output_tokens: Times
    slower: Callable[[int], Times]


def kept(slo: Slo, served: Served) -> dict[str, Kept]:
    """Whether each request keeps each limit, by the name of the limit. Exact: no division."""
    gaps = served.output_tokens - 1
    found = {}
    for name, limit in slo.limits:
        if name == "ttft":
            found[name] = served.ttft_ns <= limit
        elif name == "tpot":
            found[name] = served.decode_ns <= limit * gaps
        elif name == "itl":  # the nearest rank: at most one gap in a hundred is longer
            found[name] = served.slower(limit) <= gaps // 100
        else:
            found[name] = served.ttft_ns + served.decode_ns <= limit
    return found


# -- models of arrivals


class Parameter(NamedTuple):
    """default: of a time in seconds, else a number. is_time: whether its value has a unit."""

    default: float
    is_time: bool = False


class Model(NamedTuple):
    """summary: one line for the help. arrivals: takes the times of the trace (one at least), the
    requests per second on average (0 if none was given and the model needs none), a value for each
    parameter, and a generator; returns the arrival of each request in nanoseconds, never earlier
    than that of the one before. The same seed gives the same times."""

    summary: str
    arrivals: Callable[[Times, float, Mapping[str, float], np.random.Generator], Times]
    needs_rate: bool = True
    parameters: Mapping[str, Parameter] = {}


def from_gaps(gaps_s: NDArray[np.float64]) -> Times:
    """The first request at 0, and each of the others so long after the one before it."""
    ends = np.cumsum(np.rint(gaps_s * NS_PER_S).astype(np.int64))
    return np.concatenate((np.zeros(1, dtype=np.int64), ends))


def _recorded(
    recorded: Times, rate_per_s: float, given: Mapping[str, float], draw: np.random.Generator
) -> Times:
    span_ns = int(recorded[-1] - recorded[0])
    if not rate_per_s or not span_ns:
        return recorded
    wanted_ns = (len(recorded) - 1) * NS_PER_S / rate_per_s
    stretched: NDArray[np.float64] = (recorded - recorded[0]) * (wanted_ns / span_ns)
    return np.rint(stretched).astype(np.int64)


def _gamma(
    recorded: Times, rate_per_s: float, given: Mapping[str, float], draw: np.random.Generator
) -> Times:
    """The coefficient of variation (CV) is the standard deviation of the gaps over their mean: 1 is
    a Poisson process, 0 an even distance. vLLM's and SGLang's `--burstiness` is the shape."""
    count, mean_s = len(recorded) - 1, 1 / rate_per_s
    if not given["cv"]:
        return from_gaps(np.full(count, mean_s))
    shape = 1 / given["cv"] ** 2
    return from_gaps(draw.gamma(shape, mean_s / shape, count))


def _on_off(
    recorded: Times, rate_per_s: float, given: Mapping[str, float], draw: np.random.Generator
) -> Times:
    """A Poisson process while a phase is on, at the mean rate times (on + off) / on."""
    on_s, off_s = given["on"], given["off"]
    if not on_s:
        raise CallerError("on-off: expected a time above 0 for on, found 0; give one such as on=5s")
    gaps_s = draw.exponential(on_s / (on_s + off_s) / rate_per_s, len(recorded) - 1)
    busy_ns = from_gaps(gaps_s)  # the time without the phases that are off
    phases = busy_ns // round(on_s * 1e9)
    return busy_ns + phases * round(off_s * 1e9)


MODELS = {
    "at-once": Model(
        "all requests at the start",
        lambda recorded, rate, given, draw: np.zeros_like(recorded),
        needs_rate=False,
    ),
    "gamma": Model(
        "gamma-distributed gaps with a coefficient of variation; above 1 is bursty",
        _gamma,
        parameters={"cv": Parameter(2.0)},
    ),
    "on-off": Model(
        "bursts of exponential gaps, and nothing between them",
        _on_off,
        parameters={"on": Parameter(10.0, is_time=True), "off": Parameter(30.0, is_time=True)},
    ),
    "poisson": Model(
        "exponential gaps, as of many independent users",
        lambda recorded, rate, given, draw: from_gaps(
            draw.exponential(1 / rate, len(recorded) - 1)
        ),
    ),
    RECORDED: Model(
        "the times of the trace, stretched or compressed to --request-rate",
        _recorded,
        needs_rate=False,
    ),
    "uniform": Model(
        "an even distance between requests",
        lambda recorded, rate, given, draw: from_gaps(np.full(len(recorded) - 1, 1 / rate)),
    ),
}


class Arrivals(NamedTuple):
    """A load model and its parameters, times in seconds."""

    name: str = RECORDED
    parameters: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        known = MODELS[self.name].parameters
        units = [f"{name}={value:g}{'s' * known[name].is_time}" for name, value in self.parameters]
        return f"{self.name}:{','.join(units)}" if units else self.name


_RECORDED = Arrivals()


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """What passes between the end of a turn and the next one. ns: None for the recorded time."""

    ns: int | None

    def __str__(self) -> str:
        if self.ns is None:
            return RECORDED
        return spelled(self.ns) if self.ns else "none"


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """When requests arrive. concurrency: 0 for arrivals at their times. request_rate: None for that
    of the trace. think_time: None for the recorded one. scale_sessions: times the sessions of the
    trace."""

    arrivals: Arrivals = _RECORDED
    request_rate: Fraction | None = None
    concurrency: int = 0
    closed_loop: bool = False
    think_time: ThinkTime | None = None
    scale_sessions: Fraction = Fraction(1)

    def as_options(self) -> dict[str, object]:
        """Every option of the load, by its name on the command line."""
        rate = self.request_rate
        return {
            "arrivals": str(self.arrivals),
            "request_rate": None if rate is None else float(rate),
            "concurrency": self.concurrency or None,
            "closed_loop": self.closed_loop,
            "think_time": None if self.think_time is None else str(self.think_time),
            "scale_sessions": float(self.scale_sessions),
        }


def settings_of(options: LoadOptions) -> LoadSettings:
    return LoadSettings(
        arrivals=options.arrivals or _RECORDED,
        request_rate=options.request_rate,
        concurrency=options.concurrency or 0,
        closed_loop=bool(options.closed_loop),
        think_time=options.think_time,
        scale_sessions=options.scale_sessions or Fraction(1),
    )


class LoadOptions(Protocol):
    """What decides when requests arrive. None: not given."""

    @property
    def mode(self) -> str: ...
    @property
    def arrivals(self) -> Arrivals | None: ...
    @property
    def request_rate(self) -> Fraction | None: ...
    @property
    def concurrency(self) -> int | None: ...
    @property
    def closed_loop(self) -> bool | None: ...
    @property
    def think_time(self) -> ThinkTime | None: ...
    @property
    def scale_sessions(self) -> Fraction | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def spread(self) -> bool | None: ...


# -- a trace under a load


class LoadedTrace(TraceWithJobs):
    """A trace with other times. chained: requests that --closed-loop lets follow another one, as
    told_by says: sessions or prompts. spaced: that sessions which begin together begin evenly.
    scale: what --scale-sessions did."""

    def __init__(
        self,
        trace: Trace,
        jobs: Jobs,
        chained: int,
        told_by: str,
        spaced: str = "",
        scale: Scale | None = None,
    ) -> None:
        super().__init__(trace, jobs)
        self.notes = (*self.notes, spaced) if spaced else self.notes
        self.chained = chained
        self.told_by = told_by
        self.spaced = spaced
        self.scale = scale


def loaded(options: LoadOptions, trace: Trace) -> Trace:
    """The trace as these options let it arrive; the trace itself if they change nothing.

    Raises CallerError for an option that this trace has no use for.
    """
    jobs, chained, told_by, spaced = trace.jobs, 0, "", ""
    if jobs.sender is not None:
        _check_sender(options, trace)
    if options.mode == "timed" and not (jobs.timed or options.concurrency or options.request_rate):
        raise CallerError(
            f"{trace.path}: expected times of arrival, found none; give --request-rate with "
            "--arrivals poisson, or --concurrency, or --mode hits"
        )
    if options.spread:
        jobs = jobs.retimed(jobs.arrivals_ns, jobs.afters)
        jobs.spread(options.seed or 0)
    if options.closed_loop:
        jobs, chained, told_by = _closed(trace, jobs)
    if options.think_time is not None:
        jobs = _thinking(trace, jobs, options.think_time)
    if _are_spaced(options, jobs):
        jobs = jobs.retimed(jobs.arrivals_ns, jobs.afters)
        jobs.space()
        if options.spread and options.seed:
            jobs.spread(options.seed)
        times = jobs.arrivals_ns[jobs.afters < 0]
        apart_s = float(times[-1] - times[0]) / (len(times) - 1) / NS_PER_S
        spaced = (
            f"{len(times):,} sessions of {len(jobs):,} requests begin at one instant of the trace. "
            f"They are played as if they began {apart_s:,.1f} s apart, evenly over the pauses of "
            "the longest one; --arrivals at-once lets them begin together."
        )
    scale, factor = None, options.scale_sessions
    if factor is not None and factor != 1:
        whole = trace.jobs.afters
        trace, scale = scaled(trace, jobs, factor, options.seed or 0)
        jobs = trace.jobs
        chained = int(((jobs.afters >= 0) & (whole[trace.numbers] < 0)).sum())
    if options.arrivals is not None or options.request_rate is not None:
        jobs = _arriving(trace, jobs, options)
    if jobs is trace.jobs and scale is None:
        return trace
    return LoadedTrace(trace, jobs, chained, told_by, spaced, scale)


def _are_spaced(options: LoadOptions, jobs: Jobs) -> bool:
    """Whether sessions that begin together begin evenly instead: always, unless the user says when
    they begin, or nothing says how long they are."""
    given = options.arrivals, options.request_rate, options.concurrency
    if options.mode != "timed" or any(one is not None for one in given) or jobs.sender is not None:
        return False
    return jobs.begin_together and bool(jobs.arrivals_ns[jobs.afters >= 0].any())


def _check_sender(options: LoadOptions, trace: Trace) -> None:
    """Raises CallerError for an option that the client of the trace would not read."""
    for name in ("concurrency", "arrivals", "request_rate", "scale_sessions"):
        if getattr(options, name) is not None:
            raise CallerError(
                f"--{name.replace('_', '-')}: expected a trace whose requests arrive at their "
                f"times, found {trace.path}, which says how its client sends them; leave it out, "
                "or generate the trace with another rate"
            )


def _closed(trace: Trace, jobs: Jobs) -> tuple[Jobs, int, str]:
    """Each turn follows the turn before it, after the time between their arrivals. Returns how many
    requests do that did not before, and what tells so."""
    afters, times = jobs.afters.copy(), jobs.arrivals_ns.copy()
    free = afters < 0
    before, told_by = by_session(jobs), "sessions"
    if trace.identity and not (free & (before >= 0)).any():
        before, told_by = by_prompt(trace.paged(trace.block_size or _PAGE)), "prompts"
    # a request that follows another one has no time of its own, and the next turn no gap to it
    chained = free & (before >= 0)
    if not chained.any() and not (~free).any():
        raise CallerError(
            f"--closed-loop: expected a trace with sessions, or prompts that extend earlier ones, "
            f"found neither in {trace.path}; leave it out, or give --concurrency"
        )
    earlier = before[chained]
    known = free[earlier]
    gaps = np.where(known, jobs.arrivals_ns[chained] - jobs.arrivals_ns[earlier], 0)
    afters[chained], times[chained] = earlier, np.maximum(gaps, 0)
    return jobs.retimed(times, afters), int(chained.sum()), told_by


def _thinking(trace: Trace, jobs: Jobs, think_time: ThinkTime) -> Jobs:
    following = jobs.afters >= 0
    if not following.any():
        raise CallerError(
            f"--think-time: expected a request that follows another one, found none in "
            f"{trace.path}; add --closed-loop, or leave it out"
        )
    if think_time.ns is None:
        return jobs
    return jobs.retimed(np.where(following, think_time.ns, jobs.arrivals_ns), jobs.afters)


def _arriving(trace: Trace, jobs: Jobs, options: LoadOptions) -> Jobs:
    """The requests that follow no other arrive as a load model says."""
    arrivals = options.arrivals or _RECORDED
    model = MODELS[arrivals.name]
    free = np.flatnonzero(jobs.afters < 0)
    recorded = jobs.arrivals_ns[free]
    rate = float(options.request_rate or 0)
    span_ns = int(recorded[-1] - recorded[0])
    if not span_ns and (not rate if model.needs_rate else arrivals.name == RECORDED):
        raise CallerError(
            f"{trace.path}: expected requests that arrive at different times, found one time for "
            f"{len(free)}; give --request-rate and --arrivals poisson, or another model"
        )
    if model.needs_rate and not rate:
        rate = (len(free) - 1) * NS_PER_S / span_ns
    given = {name: one.default for name, one in model.parameters.items()}
    draw = np.random.Generator(np.random.PCG64([options.seed or 0, len(free)]))
    times = jobs.arrivals_ns.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # looked at below
        drawn = model.arrivals(recorded, rate, given | dict(arrivals.parameters), draw)
    # a time beyond 64 bits is one before the others
    if (drawn[1:] < drawn[:-1]).any() or not 0 <= drawn[-1] <= MAX_TIME_MS * NS_PER_MS:
        raise CallerError(
            f"{trace.path}: expected requests that arrive within {MAX_TIME_MS // 1000:,} s, found "
            f"later ones with --arrivals {arrivals}; give a higher --request-rate or shorter times"
        )
    times[free] = drawn
    return jobs.retimed(times, jobs.afters)


# -- turns of conversations


def by_session(jobs: Jobs) -> Numbers:
    """The request before each one in its session; -1 for the first one, or without a session."""
    sessions = jobs.sessions
    found = np.full(len(jobs), _NOBODY, dtype=np.int32)
    order = np.argsort(sessions, kind="stable")
    same = (sessions[order][1:] == sessions[order][:-1]) & (sessions[order][1:] >= 0)
    found[order[1:][same]] = order[:-1][same]
    return found


def by_prompt(paged: Paged) -> Numbers:
    """The request whose prompt each one extends: all whole pages of the earlier one are at its
    start, and it is longer. Of several, the one with the longest prompt, of these the latest. -1 if
    there is none. A prompt that many different prompts go on from is a text that conversations
    share (a system prompt), not the turn before them."""
    jobs, branches = paged.jobs, _branches(paged)
    lengths = jobs.input_lengths.tolist()
    ended = np.zeros(len(branches), dtype=np.bool_)  # whether the prompt of a request ends there
    ending: dict[int, list[int]] = {}
    found = np.full(len(jobs), _NOBODY, dtype=np.int32)
    for job in jobs:
        chain = _whole_pages(paged, job)
        for page in chain[ended[chain] & (branches[chain] <= MOST_BRANCHES)][::-1].tolist():
            latest = reversed(ending[page][-_MOST_LOOKS:])
            shorter = (one for one in latest if lengths[one] < job.input_length)
            if (before := next(shorter, _NOBODY)) != _NOBODY:
                found[job.index] = before
                break
        if len(chain):
            ended[chain[-1]] = True
            ending.setdefault(int(chain[-1]), []).append(job.index)
    return found


def _branches(paged: Paged) -> Numbers:
    """How many different pages follow each page, in whole pages of prompts."""
    branches, seen = np.zeros(1 << 12, dtype=np.int32), np.zeros(1 << 12, dtype=np.bool_)
    for job in paged.jobs:
        chain = _whole_pages(paged, job)
        more = int(chain.max(initial=-1)) + 1 - len(seen)
        if more > 0:
            more = max(more, len(seen))
            branches, seen = np.pad(branches, (0, more)), np.pad(seen, (0, more))
        known = int(seen[chain].sum())  # all behind a page that is new are new
        branches[chain[max(known, 1) - 1 : -1]] += 1
        seen[chain] = True
    return branches


def _whole_pages(paged: Paged, job: Job) -> Pages:
    return paged.chain(job)[: job.input_length // paged.page_size]


def numbered(before: Numbers) -> Numbers:
    """The turn of each request, from 0."""
    turns = [0] * len(before)
    for index, earlier in enumerate(before.tolist()):
        if earlier != _NOBODY:
            turns[index] = turns[earlier] + 1
    return np.array(turns, dtype=np.int32)
