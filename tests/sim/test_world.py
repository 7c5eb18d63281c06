"""Whole runs: steps that join, loads beside prefills, and Ctrl-C."""

from __future__ import annotations

import pytest

from sim.hardware.profile import scaled_host_bandwidth
from sim.options import EngineOptions, WorldOptions
from sim.workload import Job
from tests.sim.rig import PROFILE, make, run
from tests.sim.workloads import Prompts

_OFF = WorldOptions(checks="off")


def test_arrivals_at_the_end_of_a_step_join_the_next_one() -> None:
    """Alone, a request ends a step every so often; a second one arrives at exactly such a time."""
    alone = Prompts([Job(0, 0, 9, 2)], [list(range(9))])
    first = run(alone, 200, 0).requests[0]
    jobs = [Job(0, 0, 9, 40), Job(1, first.finish_ns, 8, 1)]
    both = Prompts(jobs, [list(range(9)), list(range(50, 58))])
    fast = run(both, 200, 0)
    assert fast == run(both, 200, 0, engine=EngineOptions(fast_forward=False))
    assert fast.requests[1].admit_ns == first.finish_ns


def _visits() -> Prompts:
    """One prompt comes back after two others pushed it off the device."""
    prompts = [list(range(80)), list(range(1000, 1100)), list(range(2000, 2100)), list(range(81))]
    jobs = [Job(index, index * 10**9, len(prompt), 2) for index, prompt in enumerate(prompts)]
    return Prompts(jobs, prompts)


def test_loading_overlaps_prefill_layer_by_layer() -> None:
    """More layer groups: earlier start, so never later, and here strictly sooner."""
    slow = scaled_host_bandwidth(PROFILE, 1, 100)
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
