"""One workload on both engines: the simulator's, and the one that was written a second time.

Lives here: a case, a run of it by either engine, and the comparison: every event at the same time,
the same result of every request, and the same use of the link. Does not choose cases (see cases).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from hicache.core.actions import Evicted, Outcome
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import Event
from hicache.core.types import PageState, Tier
from hicache.core.view import CoreView
from hicache.devices.base import Direction
from hicache.models import ModelDescription
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver
from sim.engine.sequence import RequestResult
from sim.hardware.profile import HardwareProfile
from sim.machine import build
from sim.options import EngineOptions, WorldOptions
from sim.recorder import Recorder
from sim.replica import TimedResult
from sim.times.base import make
from sim.workload import Job, Workload
from sim.world import World

from .second_engine import Parts, PlainEngine, Request


@dataclass(frozen=True)
class Case:
    """Everything that determines a run."""

    workload: Workload
    config: Config
    model: ModelDescription
    profile: HardwareProfile
    engine: EngineOptions = field(default_factory=EngineOptions)
    options: WorldOptions = field(
        default_factory=lambda: WorldOptions(checks="every", times="pure-roofline")
    )


def world_of(case: Case, **more: Any) -> World:
    """The simulator's world of a case. more: observers, or what is told of its progress."""
    return World(
        case.workload,
        case.config,
        case.model,
        case.profile,
        engine=case.engine,
        options=case.options,
        **more,
    )


class Events:
    """An observer that notes each event with its time, and counts evicted pages."""

    def __init__(self) -> None:
        self.now_ns: Callable[[], int] = lambda: 0
        self.all: list[tuple[int, Event]] = []
        self.evicted: Counter[tuple[Tier, str]] = Counter()

    def on_event(self, event: Event, view: CoreView) -> None:
        self.all.append((self.now_ns(), event))

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for told in outcomes:
            if isinstance(told, Evicted):
                self.evicted[told.tier, told.component] += len(told.pages)


@dataclass(frozen=True)
class Ran:
    """What both engines tell. scheduled: events of the clock. link: bytes and busy time by
    direction.
    """

    requests: list[Request]
    digest: str
    events: list[tuple[int, Event]]
    scheduled: int
    link: dict[Direction, tuple[int, int]]


def simulated(case: Case, events: Events | None = None) -> tuple[TimedResult, World]:
    """A run of the simulator. events: notes them."""
    events = events or Events()
    world = world_of(case, observers=(events,))
    events.now_ns = lambda: world.clock.now_ns
    return world.run(), world


def plain(case: Case) -> Ran:
    """A run of the engine that was written a second time, on the same device without bytes."""
    core, options = Core(case.config), replace(case.options, checks="off")
    groups = min(case.engine.layer_groups, case.model.layers)
    machine = build(case.config, case.model, case.profile, groups, options)
    clock, controller = machine.clock, TransferController(machine.device)
    recorder, events = Recorder(lambda: clock.now_ns), Events()
    events.now_ns = lambda: clock.now_ns
    driver = Driver(core, controller, (recorder, events))
    costs = make("pure-roofline", case.model, case.profile, options.parallelism)
    jobs, done = list(case.workload.jobs), dict[int, Request]()
    speed = Fraction(options.speed)

    def ended(request: Request) -> None:
        done[request.job.index] = request
        for job in jobs:
            if job.after == request.job.index:
                clock.after(int(job.arrival_ns / speed), _arrival(engine, job))

    parts = Parts(clock, driver, controller, machine.sim, costs)
    engine = PlainEngine(case.workload, parts, case.engine, ended)
    machine.sim.listener = engine.wake
    first = [job for job in jobs if job.after < 0]

    def arrive() -> None:  # the next one is announced when the one before has arrived
        if first:
            job = first.pop(0)
            due_ns = max(0, int(job.arrival_ns / speed) - clock.now_ns)

            def next_one() -> None:
                engine.arrive(job)
                arrive()

            clock.after(due_ns, next_one)

    arrive()
    while clock.peek() != float("inf"):
        clock.step()
    (link,) = machine.links
    return Ran(
        [done[index] for index in sorted(done)],
        recorder.digest(),
        events.all,
        clock.scheduled,
        {way: (link.bytes_moved(way), link.busy_ns(way)) for way in Direction},
    )


def _arrival(engine: PlainEngine, job: Job) -> Callable[[], None]:
    return lambda: engine.arrive(job)


def agree(case: Case) -> TimedResult:
    """Runs both engines. Raises AssertionError for the first difference."""
    expected = plain(case)
    events = Events()
    result, world = simulated(case, events)
    size, components = case.config.page_size, case.config.components
    assert len(result.requests) == len(case.workload.jobs), "a request was lost"
    for one, told in zip(expected.requests, result.requests, strict=True):
        same_request(one, told, size, components)
    for one_event, other in zip(events.all, expected.events, strict=True):
        assert one_event == other, f"event {one_event}, expected {other}"
    assert result.digest == expected.digest, "another outcome"
    assert result.core_events == len(expected.events)
    assert result.makespan_ns == max(one.finish_ns for one in expected.requests)
    for way, use in (
        (Direction.DEVICE_TO_HOST, result.d2h),
        (Direction.HOST_TO_DEVICE, result.h2d),
    ):
        assert (use.bytes, use.busy_ns) == expected.link[way], f"another use of the link: {use}"
    same_gaps(expected.requests, result)
    for name, device, host in result.evicted:
        assert device == events.evicted[Tier.DEVICE, name], "evictions from the device"
        assert host == events.evicted[Tier.HOST, name], "evictions from host"
    idle(world)
    return result


def same_request(one: Request, told: RequestResult, size: int, components: tuple[str, ...]) -> None:
    """Raises AssertionError if a result differs from that of the other engine."""
    expected = RequestResult(
        one.job.index,
        one.job.input_length,
        one.job.output_length,
        one.device * size,
        one.host * size,
        one.computed,
        one.arrival_ns,
        one.admit_ns,
        one.first_token_ns,
        one.finish_ns,
        one.retractions,
        tuple(depth * size for depth in one.depths),
        one.loaded,
        _capped(one, components),
        one.load_ns,
        one.compute_ns,
        one.refusals,
    )
    assert told.device_tokens + told.host_tokens + told.computed_tokens == one.job.input_length
    assert told == expected, f"request {told.request}: expected {expected}, found {told}"
    in_passes_ns = one.load_ns + one.compute_ns
    assert told.queue_ns == one.first_token_ns - one.arrival_ns - in_passes_ns


def same_gaps(requests: Sequence[Request], result: TimedResult) -> None:
    """Raises AssertionError if the times between tokens are not those of the other engine."""
    gaps = {
        one.job.index: sorted(after - before for before, after in pairwise(one.tokens_ns))
        for one in requests
    }
    (told,) = result.gaps
    for index, times in gaps.items():
        found, counts = told.weighted(np.array([index]))
        assert sorted(np.repeat(found, counts).tolist()) == times, f"gaps of request {index}"
    every = sorted(time for times in gaps.values() for time in times)
    found, counts = told.weighted(np.array(list(gaps)))
    assert sorted(np.repeat(found, counts).tolist()) == every
    for limit in {0, *every[:: len(every) // 4 + 1]}:
        slow = [sum(time > limit for time in times) for times in gaps.values()]
        assert told.slower(limit, max(gaps) + 1)[list(gaps)].tolist() == slow


def _capped(one: Request, components: tuple[str, ...]) -> str:
    """Why a request reused less than its first component knew."""
    if one.device + one.host >= one.depths[0]:
        return ""
    shallow = [
        name for name, depth in zip(components, one.depths, strict=True) if depth == min(one.depths)
    ]
    return shallow[0] if min(one.depths) < one.depths[0] else "load"


def idle(world: World) -> None:
    """Nothing admitted, in flight, locked or lent; every page of every pool is free or cached."""
    view = world.core.view
    assert not view.requests
    assert not view.flights
    assert not world.engine.sequences
    assert world.controller.unanswered == 0
    for tier in (Tier.DEVICE, Tier.HOST):
        for index in range(len(view.components)):
            pool = view.pool(tier, index)
            assert pool.counts[PageState.FREE] + pool.counts[PageState.CACHED] == pool.capacity
            assert pool.protected == 0
            assert not pool.loans.any()
