"""Whole runs: options, sizes, conservation, and knobs whose effect theory gives. A larger token
budget, more running requests, another order or a faster accelerator under a queue can lengthen the
time of a single request; several loads share the link, so a faster one is judged for one load."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sim.errors import StuckError
from sim.hardware import HardwareProfile
from sim.options import EngineOptions
from sim.workload import Job

from .cases import PROFILE, drawn
from .found_out import raised
from .rig import make, run
from .runs import idle, simulated, world_of
from .workloads import Prompts, alone


def _slower(factor: int) -> HardwareProfile:
    return replace(PROFILE, link_bytes_per_s=PROFILE.link_bytes_per_s // factor, curves={})


def test_nothing_is_lost() -> None:
    """At every moment: offered = ended + in the engine + still to come; each progress is told."""
    for seed in (1, 4, 9):
        case = drawn(seed)
        told: list[tuple[int, int]] = []
        world = world_of(case, progress=lambda *both, told=told: told.append(both))
        jobs = list(case.workload.jobs)
        arrived: Counter[int] = Counter()
        arrive = world.engine.arrive

        def note(job: Job, arrive: Any = arrive, arrived: Counter[int] = arrived) -> None:
            arrived[job.index] += 1
            arrive(job)

        world.engine.arrive = note  # type: ignore[method-assign]
        world._arrivals.begin()
        while world.clock.next_ns() >= 0:
            world.clock.step()
            result = world.result()
            ended = {one.request for one in result.requests}
            live = {*world.engine.sequences}
            assert not ended & live
            assert {*arrived} == ended | live, "a request is neither served nor waiting"
            assert result.makespan_ns == max((one.finish_ns for one in result.requests), default=0)
        assert arrived == Counter(job.index for job in jobs)
        assert told == [(at + 1, len(jobs)) for at in range(len(jobs))]
        idle(world)


def test_stuck_runs_say_so() -> None:
    """A run whose requests can never go on ends with an error, and keeps what was served."""
    workload = alone([0, 5, 5], 8, 2)
    world = make(workload, 6, 0)
    schedule = world.engine._prefills.schedule

    def never(retractions: int) -> None:
        if len(world.result().requests) < 1:
            schedule(retractions)
        else:
            world.engine._prefills.batch = []

    world.engine._prefills.schedule = never  # type: ignore[method-assign]
    error = raised(world.run, StuckError)
    assert error is not None, "a run that is stuck ended well"
    assert error.exit_code == 14
    left = 3 - len(world.result().requests)
    assert str(error).startswith(f"{left} requests are left ("), str(error)
    told = "0 transfers unanswered, and nothing is scheduled; last refusal: Refused(request=2, "
    assert told in str(error), str(error)
    _collection_is_restored()


def _collection_is_restored() -> None:
    """A run collects no garbage, and leaves the collector as it was."""
    for on in (True, False):
        (gc.enable if on else gc.disable)()
        seen: list[bool] = []

        def note(ended: int, jobs: int, seen: list[bool] = seen) -> None:
            seen.append(gc.isenabled())

        try:
            world = make(alone([0], 8, 2), 6, 0)
            world._progress = note
            world.run()
            assert (seen, gc.isenabled()) == ([False], on)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("seed", "checks", "scheduled"),
    [
        *((7, (213, 207), 190), (10, (86, 108), 104), (18, (196, 347), 442)),
        *((31, (255, 372), 276), (37, (253, 279), 73)),
    ],
)
def test_levels_and_steps_agree(seed: int, checks: tuple[int, int], scheduled: int) -> None:
    """Checks and fast-forward change no time, no decision and no digest. checks: of bytes and of
    accesses, as many as all passes, copies and steps report. scheduled: events of the clock."""
    case = drawn(seed)
    result, _ = simulated(case)
    assert (result.byte_checks, result.access_checks) == checks
    bare = replace(result, byte_checks=0, access_checks=0)
    off = replace(case, options=replace(case.options, checks="off"))
    assert simulated(off)[0] == bare
    stepped = replace(off, engine=replace(off.engine, fast_forward=False))
    result, world = simulated(stepped)
    assert result == bare
    assert next(world.clock._eid) == scheduled, "events that change nothing"


def _visits(gap_ns: int = 10**9) -> Prompts:
    """One prompt comes back after two others pushed it off the device."""
    prompts = [list(range(80)), list(range(1000, 1100)), list(range(2000, 2100)), list(range(81))]
    jobs = [Job(index, index * gap_ns, len(prompt), 2) for index, prompt in enumerate(prompts)]
    return Prompts(jobs, prompts)


def test_loading_overlaps_prefill_layer_by_layer() -> None:
    """More layer groups: earlier start, so never later, and here strictly sooner."""
    slow = _slower(100)
    times = [
        run(_visits(), 30, 200, profile=slow, engine=EngineOptions(layer_groups=groups))
        .requests[3]
        .first_token_ns
        for groups in (1, 8)
    ]
    assert times[1] < times[0]


def test_ctrl_c_keeps_partial_results() -> None:
    def stop(ended: int, _: int) -> None:
        if ended == 2:
            raise KeyboardInterrupt

    world = make(_visits(), 30, 200)
    world._progress = stop
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert [request.request for request in world.result().requests] == [0, 1]
