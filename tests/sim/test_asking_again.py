"""When a refused request asks again, and what it is credited with."""

from __future__ import annotations

import pytest

from sim.engine import running
from sim.options import EngineOptions, WorldOptions
from sim.world import World
from tests.sim.workloads import shared_prefixes

from .rig import make

POLICIES = ("write_through", "write_through_selective", "write_back")


def crowded(seed: int, write_policy: str, device: int, host: int) -> World:
    """More requests than the device has pages for, so that some are refused and preempted."""
    return make(
        shared_prefixes(seed, 14),
        device,
        host,
        engine=EngineOptions(max_running=100, token_budget=32),
        options=WorldOptions(checks="off"),
        write_policy=write_policy,
    )


@pytest.mark.parametrize("write_policy", POLICIES)
def test_a_request_that_waits_for_what_it_was_told_loses_no_time(
    write_policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that asks at every boundary ends every request at the same time."""
    preempted = 0
    for seed in range(5):
        for device, host in ((16, 40), (14, 9)):
            patient = crowded(seed, write_policy, device, host).run()
            with monkeypatch.context() as patch:
                patch.setattr(running.Running, "is_blocked", lambda self, blocked: False)
                eager = crowded(seed, write_policy, device, host).run()
            pairs = zip(patient.requests, eager.requests, strict=True)
            for one, other in pairs:  # only how often they asked may differ
                assert one.refusals <= other.refusals
                assert one == other._replace(refusals=one.refusals), (seed, device)
            preempted += sum(one.retractions for one in patient.requests)
    assert preempted > 5
