"""Whole runs: two ways to count time agree, faults and tiny pools end well, races are caught."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from hicache.devices.base import Mark, Stream
from sim.device.hazards import HazardDevice
from sim.errors import HazardError
from sim.hardware.profile import scaled_host_bandwidth
from sim.options import EngineOptions, WorldOptions
from sim.workload import Job
from tests.sim.judged.runs import idle
from tests.sim.judged.workloads import PAGE, Prompts, shared_prefixes
from tests.sim.rig import PROFILE, SMALL, WORLDS, make, run

_OFF = WorldOptions(checks="off")


@settings(max_examples=60, deadline=None)
@given(st.fixed_dictionaries(WORLDS))
def test_every_run_ends_checked_and_equal_to_stepping_one_token_at_a_time(
    drawn: dict[str, Any],
) -> None:
    workload = shared_prefixes(drawn["seed"], drawn["count"], gap_ns=drawn["gap_ns"])
    period = drawn["period"]
    options = WorldOptions(
        checks="every",
        lag_ns=drawn["lag_ns"],
        faults=lambda number, _: bool(period) and number % period == 1,
    )
    sizes, policy = (drawn["device"], drawn["host"]), drawn["policy"]
    world = make(workload, *sizes, engine=drawn["engine"], options=options, write_policy=policy)
    result = world.run()
    idle(world)
    assert [request.request for request in result.requests] == list(range(drawn["count"]))
    for request, job in zip(result.requests, workload.jobs, strict=True):
        reused = request.device_tokens + request.host_tokens
        assert reused + request.computed_tokens == job.input_length
        assert reused < job.input_length
        assert request.arrival_ns <= request.admit_ns < request.first_token_ns
        assert request.finish_ns >= request.first_token_ns
        waited_ns = request.queue_ns + request.load_ns + request.compute_ns
        assert waited_ns == request.first_token_ns - request.arrival_ns
        assert min(request.queue_ns, request.load_ns) >= 0 < request.compute_ns
        assert (request.finish_ns > request.first_token_ns) == (job.output_length > 1)
    assert result.byte_checks >= drawn["count"]

    stepped = run(
        workload,
        *sizes,
        engine=replace(drawn["engine"], fast_forward=False),
        options=replace(options, checks="off"),
        write_policy=policy,
    )
    assert stepped == replace(result, byte_checks=0, access_checks=0)


def test_fast_forward_saves_events() -> None:
    workload = Prompts([Job(0, 0, 9, 400)], [list(range(9))])
    engine = EngineOptions(growth_tokens=64)
    fast = make(workload, 200, 0, engine=engine)
    slow = make(workload, 200, 0, engine=replace(engine, fast_forward=False))
    assert fast.run() == slow.run()
    scheduled = [world.clock.scheduled for world in (fast, slow)]
    assert scheduled[0] * 10 < scheduled[1]


def test_arrivals_at_the_end_of_a_step_join_the_next_one() -> None:
    """Alone, a request ends a step every so often; a second one arrives at exactly such a time."""
    alone = Prompts([Job(0, 0, 9, 2)], [list(range(9))])
    first = run(alone, 200, 0).requests[0]
    jobs = [Job(0, 0, 9, 40), Job(1, first.finish_ns, 8, 1)]
    both = Prompts(jobs, [list(range(9)), list(range(50, 58))])
    fast = run(both, 200, 0)
    assert fast == run(both, 200, 0, engine=EngineOptions(fast_forward=False))
    assert fast.requests[1].admit_ns == first.finish_ns


def _growing_answers() -> Prompts:
    """Six requests whose prompts fit a small pool together and whose answers do not."""
    jobs = [Job(index, 0, 8, 30) for index in range(6)]
    return Prompts(jobs, [[100 * index + n for n in range(8)] for index in range(6)])


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
@pytest.mark.parametrize("host", [0, 3, 40])
def test_too_many_long_answers_are_retracted_and_all_end(policy: str, host: int) -> None:
    world = make(_growing_answers(), 13, host, engine=SMALL, write_policy=policy)
    result = world.run()
    idle(world)
    assert len(result.requests) == 6
    assert sum(request.retractions for request in result.requests) > 0


def test_a_pool_smaller_than_one_request_is_refused() -> None:
    with pytest.raises(CallerError) as caught:
        make(_growing_answers(), 9, 40)
    assert str(caught.value) == (
        "device pool of full: expected at least 10 pages for request 0, found 9; enlarge the pool "
        "or leave the request out"
    )
    assert len(run(_growing_answers(), 10, 40).requests) == 6


def _visits() -> Prompts:
    """One prompt comes back after two others pushed it off the device."""
    prompts = [list(range(80)), list(range(1000, 1100)), list(range(2000, 2100)), list(range(81))]
    jobs = [Job(index, index * 10**9, len(prompt), 2) for index, prompt in enumerate(prompts)]
    return Prompts(jobs, prompts)


def test_a_slower_host_link_changes_latency_and_no_hit() -> None:
    full = run(_visits(), 30, 200)
    half = run(_visits(), 30, 200, profile=scaled_host_bandwidth(PROFILE, 1, 2))
    crawl = run(_visits(), 30, 200, profile=scaled_host_bandwidth(PROFILE, 1, 10**6))
    hits = [[(r.device_tokens, r.host_tokens) for r in run_.requests] for run_ in (full, half)]
    assert hits[0] == hits[1]
    assert hits[0][3] == (0, 80)
    ttft = [run_.requests[3].first_token_ns - run_.requests[3].arrival_ns for run_ in (full, half)]
    assert ttft[0] < ttft[1]
    assert crawl.requests[3].first_token_ns > half.requests[3].first_token_ns
    loads = [run_.requests[3].load_ns for run_ in (full, half, crawl)]
    assert loads == sorted(loads)
    assert loads[2] > 10**10 > loads[0] > 0
    computes = {run_.requests[3].compute_ns for run_ in (full, half, crawl)}
    assert len(computes) == 1
    assert full.requests[0].load_ns == 0
    assert full.h2d.bytes == half.h2d.bytes == 20 * PAGE * 131_072


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


def test_a_prefill_that_does_not_wait_for_its_load_is_a_hazard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(HazardDevice):
        """Forgets the waits of the compute stream."""

        def wait(self, stream: Stream, mark: Mark) -> None:
            if stream != self.stream("compute"):
                super().wait(stream, mark)

    monkeypatch.setattr("sim.machine.HazardDevice", Deaf)
    with pytest.raises(HazardError, match=r"read by 'prefill of request 3 .* not ordered after"):
        run(_visits(), 30, 200)


def test_ctrl_c_keeps_partial_results() -> None:
    def stop(ended: int, _: int) -> None:
        if ended == 2:
            raise KeyboardInterrupt

    world = make(_visits(), 30, 200)
    world._progress = stop
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert [request.request for request in world.result().requests] == [0, 1]


_SCRIPT = """
from tests.sim.judged.workloads import shared_prefixes
from tests.sim.rig import make
from sim.options import EngineOptions
result = make(shared_prefixes(5, 40), 20, 50, engine=EngineOptions(token_budget=32)).run()
print(result.digest, result.makespan_ns)
"""


def test_the_digest_is_the_same_in_another_process_and_tells_runs_apart() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(seen) == 1
    digests = {run(shared_prefixes(seed, 20), options=_OFF).digest for seed in range(3)}
    assert len(digests) == 3


def test_directions_are_counted_separately() -> None:
    result = run(_visits(), 30, 200)
    assert result.d2h.bytes > result.h2d.bytes > 0
    assert result.d2h.busy_ns > 0
    assert result.h2d.busy_ns > 0
