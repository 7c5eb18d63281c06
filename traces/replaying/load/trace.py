"""A trace with the arrivals of a load: a model's times, a closed loop, think times, more sessions.

Apart from sessions that are added or left out (see scaled), the requests, their order and what they
ask for stay as they are. docs/load.md explains the options.
Does not know when a request ends: delays after the end of another one are in its job, and the
simulator does the rest (sim/arrivals).
"""

from __future__ import annotations

import numpy as np

from hicache.core.errors import CallerError

from ...formats._jobs import Jobs
from ...formats._with_jobs import TraceWithJobs
from ...formats.base import MAX_TIME_MS, NS_PER_MS, Trace
from . import turns
from .models import MODELS, NS_PER_S, RECORDED, Arrivals
from .options import LoadOptions, ThinkTime
from .scaled import Scale, scaled

_PAGE = 16  # tokens; to compare prompts of a trace that has no blocks


def loaded(options: LoadOptions, trace: Trace) -> Trace:
    """The trace as these options let it arrive; the trace itself if they change nothing.

    Raises CallerError for an option that this trace has no use for.
    """
    jobs, chained, told_by = trace.jobs, 0, ""
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
    spaced = ""
    if _are_spaced(options, jobs):
        jobs = jobs.retimed(jobs.arrivals_ns, jobs.afters)
        jobs.space()
        if options.spread and options.seed:
            jobs.spread(options.seed)
        spaced = _spaced(jobs)
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
    told = options.arrivals, options.request_rate, options.concurrency
    if options.mode != "timed" or any(one is not None for one in told) or jobs.sender is not None:
        return False
    return jobs.begin_together and bool(jobs.arrivals_ns[jobs.afters >= 0].any())


def _spaced(jobs: Jobs) -> str:
    times = jobs.arrivals_ns[jobs.afters < 0]
    apart_s = float(times[-1] - times[0]) / (len(times) - 1) / NS_PER_S
    return (
        f"{len(times):,} sessions of {len(jobs):,} requests begin at one instant of the trace. "
        f"They are played as if they began {apart_s:,.1f} s apart, evenly over the pauses of the "
        "longest one; --arrivals at-once lets them begin together."
    )


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
    before, told_by = turns.by_session(jobs), "sessions"
    if trace.identity and not (free & (before >= 0)).any():
        before, told_by = turns.by_prompt(trace.paged(trace.block_size or _PAGE)), "prompts"
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
    arrivals = options.arrivals or Arrivals()
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
