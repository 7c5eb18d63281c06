"""When a refused request asks again, and what it is credited with."""

from __future__ import annotations

import pytest

from hicache.core.actions import Outcome, Refused
from hicache.core.events import AdmitWanted, ContinueWanted, Event
from sim.engine import running
from sim.engine.running import Blocked, Running
from sim.options import EngineOptions, WorldOptions
from sim.world import World
from tests.sim.judged.workloads import shared_prefixes

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
    for seed in range(12):
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
    assert preempted > 20


def test_nobody_is_admitted_while_a_chunk_waits_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the younger request would take the pages that the older one waits for."""
    feed, starved = Running.feed, []
    refused: list[Blocked | None] = [None]

    def watched(self: Running, event: Event) -> list[Outcome]:
        if isinstance(event, AdmitWanted):
            assert not self.is_blocked(refused[0]), f"{event} while a chunk waits"
        outcomes = feed(self, event)
        if isinstance(event, ContinueWanted):
            refused[0] = None
            for one in outcomes:
                if isinstance(one, Refused) and one.preempt < 0:
                    refused[0] = self.blocked(one)
                    starved.append(event)
        return outcomes

    monkeypatch.setattr(Running, "feed", watched)
    for seed in range(30):
        make(
            shared_prefixes(seed, 25, gap_ns=10**6),
            (40, 5),
            (80, 10),
            components=("full", "swa"),
            swa_window=6,
            write_policy="write_back",
            engine=EngineOptions(token_budget=8, max_running=100),
            options=WorldOptions(checks="off"),
        ).run()
    assert starved


@pytest.mark.parametrize("write_policy", POLICIES)
def test_a_request_is_credited_with_its_whole_prompt_once(write_policy: str) -> None:
    """Also where loads and passes fail before and after its first token, and it is preempted."""
    preempted = 0
    for seed in range(20):
        found = make(
            shared_prefixes(seed, 25, gap_ns=10**6),
            16,
            40,
            engine=EngineOptions(token_budget=16, max_running=100, growth_tokens=6),
            options=WorldOptions(checks="off", faults=lambda number, _: number % 3 == 1),
            write_policy=write_policy,
        ).run()
        for one in found.requests:
            reused = one.device_tokens + one.host_tokens
            assert reused + one.computed_tokens == one.input_length, (seed, one)
        preempted += sum(one.retractions for one in found.requests)
    assert preempted
