"""A study of sizes, step by step: the trace, its curve, a pilot, the loads, the points.

    curve     exact, of the whole trace: which sizes are worth a replay
    pilot     a short replay: about how much the machine can do
    loads     replays at loads that bracket what the machine serves, without and with host memory
    points    see plan; those of the ladder several times, with other draws of what is random
    errors    the same with passes that take longer or shorter by the error to expect

Of a long trace a part is replayed (see sampling). Does not print or conclude; see output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hicache.core.errors import CallerError

from ..curves.curves import CurveOptions, Curves, curves_of
from ..deciding.serving import Served, serves
from ..formats.base import Paged, Trace
from ..replaying.options import ReplayOptions
from ..replaying.settings import Settings, resolve
from ..reporting import timestamps
from ..sweeping.grid import Point, check_simulated
from ..sweeping.running import How, Measured
from ..sweeping.work import Traces, opened_once
from ..terminal.workers import cores
from . import plan, sampling
from .plan import Named
from .replays import Document, Replays, pass_error, together
from .search import bracketed, pilot, typed

IDLE = 20  # times less than the first load that is tried
_LOADS = 8  # replays for the load of a machine: to choose a part for a budget


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for beside the replay. sizes: bytes of host memory; None to choose them.
    budget_s: None without one. draws: replays of each point of the ladder."""

    sizes: Sequence[int] | None
    budget_s: float | None
    draws: int
    how: How


@dataclass(frozen=True, slots=True)
class Moved:
    """How far times move if every pass takes longer and shorter by the error to expect. points: for
    each machine its label, and the p50 and p90 time to first token with passes that are shorter, as
    modelled, and longer, in seconds."""

    error: float
    judged: bool
    points: Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True, slots=True)
class Study:
    """All that a report is made of. trace, paged, settings: whole, without host memory. curves:
    None for a trace of lengths only. rate: the part that was replayed. error: of hit rates, if that
    is not all. served: the limit of each machine; empty where the load was given. idle: the part of
    the requests that keep the limits on an idle machine. points: documents. moved: None without
    times that can be scaled. spread: whether a coarse clock was spread although nobody asked for
    it."""

    trace: Trace
    paged: Paged
    settings: Settings
    options: ReplayOptions
    curves: Curves | None
    ladder: plan.Ladder
    rate: Fraction
    error: sampling.Error | None
    served: Sequence[Served]
    idle: float | None
    speed: Fraction
    points: Sequence[Document]
    tasks: int
    replays: int
    moved: Moved | None
    spread: bool
    ended: Measured


def study(given: ReplayOptions, asked: Asked, command: str) -> Study:
    """Runs everything. Raises CallerError for what cannot be run, before the first replay."""
    check_simulated(given.storage)
    traces = Traces()
    base = replace(given, check=given.check or "off", host_ratio=Fraction(0), sample=None)
    if base.scale_sessions is not None:
        base = replace(base, seed=base.seed or 1)  # the curve has the sessions of the first draw
    base, spread = spread_of(base, traces)
    bare = plan.bare(base)
    trace = traces(bare)
    settings, paged = plan.resolved(bare, base, trace)
    curves, steps = None, plan.Ladder((), 0)
    if trace.identity:
        curves, steps = _curves(trace, paged, settings, asked.sizes, base.exclusive)
    tried = pilot(bare, Traces()) if open_loop(base) else None
    first = base.seed or 1
    base = replace(base, seed=first)
    speed = base.speed or min(tried or Fraction(1), Fraction(1))
    base = replace(base, speed=speed) if base.request_rate is None else base
    rate = given.sample or Fraction(1)
    machines = _possible(plan.machines(base, steps if curves else None), trace)
    fixed = [*plan.ladder_points(base, steps), *plan.other_points(base, steps)] if curves else []
    fixed = _possible(fixed, trace)
    if asked.budget_s is not None:
        count = len(machines) * (_LOADS + 2) + len(fixed) + asked.draws * (1 + len(steps.sizes))
        jobs = min(asked.how.jobs or cores(), count)
        rate = sampling.part_for(asked.budget_s, trace, paged.page_size, count, jobs)
    error = None
    played = sampling.hold(bare, traces.recorded(bare), rate)
    if rate < 1:
        if curves is not None:
            error = sampling.error_of(trace, opened_once(played), curves.lru, paged.page_size)
        machines, fixed = (
            [(label, plan.of_part(point, rate)) for label, point in named]
            for named in (machines, fixed)
        )
    replays = Replays(asked.how, command, base)
    served: list[Served] = []
    idle, at = None, [speed] * len(machines)
    if tried is not None and given.speed is None and given.request_rate is None:
        served, idle = _searched(machines, replays, tried)
        limits = [one.served or speed for one in served]
        at = [min(Fraction(1), limits[0])] * len(limits) if curves else limits
        speed = at[0]
    seeds = range(first, first + asked.draws)
    if curves is None:
        named = [plan.loaded(one, load) for one, load in zip(machines, at, strict=True)]
    else:
        named = [(label, plan.at_speed(point, speed)) for label, point in fixed]
    repeated = len(named) if curves is None else 1 + len(steps.sizes)
    points = _drawn(named[:repeated], named[repeated:], seeds, replays)
    moved = _moved(machines, at, points, replays) if tried is not None else None
    return Study(
        *(trace, paged, settings, base, curves, steps, rate, error, served, idle, speed),
        *(points, len(named), replays.count, moved, spread, replays.ended),
    )


def _curves(
    trace: Trace, paged: Paged, settings: Settings, sizes: Sequence[int] | None, exclusive: bool
) -> tuple[Curves, plan.Ladder]:
    page_bytes = settings.host_page_bytes[0] * settings.page_ranks
    device = settings.core.device_pages[0]
    each = page_bytes // paged.page_size
    curves = curves_of(trace, paged, CurveOptions(device_pages=device, bytes_per_token=each))
    tokens = trace.jobs.input_tokens
    return curves, plan.ladder(curves.lru, tokens, page_bytes, device, sizes, exclusive)


def _searched(
    machines: Sequence[Named], replays: Replays, tried: Fraction
) -> tuple[list[Served], float | None]:
    """The largest load that each machine serves, all of them searched side by side; and the part of
    the requests that keep the limits when there is hardly any load."""
    start = tried / 2
    idle: float | None = None
    if machines[0][1].options.slo is not None:
        [alone] = replays.run([plan.loaded(machines[0], typed(float(start / IDLE)))])
        idle = alone["slo"]["attained_rate"] if alone else None
    starts = [start] * len(machines)
    searches = bracketed(machines, starts, replays, lambda one: serves(one, idle))
    return [
        Served(label, search.served, search.refused)
        for search, (label, _) in zip(searches, machines, strict=True)
    ], idle


def _drawn(
    several: Sequence[Named], once: Sequence[Named], seeds: range, replays: Replays
) -> list[Document]:
    """The documents of all points that were replayed as often as wanted, in their order."""
    drawn = [plan.drawn(one, seed) for one in several for seed in seeds]
    found = replays.run([*drawn, *once])
    points = []
    for place, (label, _) in enumerate(several):
        each = found[place * len(seeds) : (place + 1) * len(seeds)]
        whole = [document for document in each if document is not None]
        if len(whole) == len(seeds):
            points.append(together(label, whole))
    alone = found[len(drawn) :]
    return points + [together(one["label"], [one]) for one in alone if one is not None]


def _moved(
    machines: Sequence[Named],
    loads: Sequence[Fraction],
    points: Sequence[Document],
    replays: Replays,
) -> Moved | None:
    """The times of each machine with passes that take longer and shorter."""
    if not points:
        return None
    error, judged = pass_error(points[0])
    factors = [1 - Fraction(f"{error:.2f}"), Fraction(1), 1 + Fraction(f"{error:.2f}")]
    named = [
        plan.slower_passes((label, plan.at_speed(point, load)), factor)
        for (label, point), load in zip(machines, loads, strict=True)
        for factor in factors
    ]
    found = replays.run(named)
    moved = {}
    for place, (label, _) in enumerate(machines):
        each = found[place * len(factors) : (place + 1) * len(factors)]
        if None in each:
            return None
        moved[label] = {
            name: [
                one["latency_s"]["ttft"][name] * float(factor)  # type: ignore[index]
                for one, factor in zip(each, factors, strict=True)
            ]
            for name in ("p50", "p90")
        }
    return Moved(error, judged, moved)


def spread_of(
    base: ReplayOptions, traces: Callable[[ReplayOptions], Trace]
) -> tuple[ReplayOptions, bool]:
    """The options with --spread, with which a seed draws arrivals; whether the clock of the trace
    is coarse and nobody asked for that."""
    if base.spread is not None or base.arrivals is not None or base.concurrency is not None:
        return base, False
    if traces(base).jobs.sender is not None:
        return base, False
    return replace(base, spread=True), timestamps.is_coarse(traces(base).jobs)


def open_loop(options: ReplayOptions) -> bool:
    """Whether requests arrive at times of their own."""
    return options.concurrency is None and not options.closed_loop


def _possible(chosen: Sequence[tuple[str, Point]], trace: Trace) -> list[tuple[str, Point]]:
    """The points that can be replayed; all but the first one may be left out. Raises CallerError
    if the first one cannot."""
    found = []
    for place, (label, point) in enumerate(chosen):
        try:
            resolve(point.options, trace)
        except CallerError:
            optional = point.options.tp != chosen[0][1].options.tp
            if not place or not optional:
                raise
            continue
        found.append((label, point))
    return found
