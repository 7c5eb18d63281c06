"""Replicas behind a router: each is a replica alone, work is divided as the router says, and a
fleet that loses or misplaces a request is caught."""

from dataclasses import replace
from typing import Any

import pytest

from sim.errors import SimError, StuckError
from sim.fleet import Fleet
from sim.workload import Job
from tests.sim.workloads import in_sessions, shared_prefixes

from . import rig
from .fleets import ROUTERS, Part, conversations, make, reused, run


@pytest.mark.parametrize("router", ROUTERS)
def test_one_replica_behind_any_router_is_the_plain_replay(router: str) -> None:
    workload = in_sessions(shared_prefixes(5, 20))
    plain = rig.run(workload, 16, 9)
    output = run(workload, (1, 0), router, device=16, host=9)
    assert output.digest == plain.digest
    assert output.requests == plain.requests


@pytest.mark.parametrize("seed", range(2))
def test_each_replica_is_a_replay_of_what_was_sent_to_it(seed: int) -> None:
    """Whatever the other replicas do meanwhile."""
    workload = shared_prefixes(seed, 30)
    every = enumerate(workload.jobs)
    workload.jobs = [replace(job, arrival_ns=at * 7_000_000, after=-1) for at, job in every]
    output = run(workload, (3, 0), device=16)
    for place, member in enumerate(output.members):
        sent = [index for index, chosen in output.choices.items() if chosen == place]
        assert sent == list(range(place, 30, 3))
        assert member.digest == rig.run(Part(workload, sent), 16, 40).digest


def test_prefix_aware_hits_what_one_cache_would_where_all_fits() -> None:
    workload = conversations(6, 5)
    ceiling = rig.run(workload, 600, 0)
    room = {"device": 200, "host": 0}
    total = sum(request.device_tokens + request.host_tokens for request in ceiling.requests)
    aware, turns = (run(workload, (3, 0), name, **room) for name in ("prefix_aware", "round_robin"))
    assert reused(aware) == total
    assert reused(turns) == total  # 6 clients in turn: each is always sent to the same replica
    unlucky = conversations(7, 5)  # a client's turns go to another replica each time
    aware, turns = (run(unlucky, (3, 0), name, **room) for name in ("prefix_aware", "round_robin"))
    assert reused(aware) == 4 * 7 * 24 + 7 * (12 + 24 + 36) > 2 * reused(turns)


def test_a_session_stays_on_its_replica() -> None:
    output = run(conversations(5, 4), (3, 0), "session_sticky", device=200)
    for client in range(5):
        assert len({output.choices[index] for index in range(client, 20, 5)}) == 1
    assert len({*output.choices.values()}) == 3


def test_the_index_knows_what_the_caches_have() -> None:
    """At the end the events say what the trees say: they are all that the router was told."""
    fleet = make(shared_prefixes(5, 60), (3, 0), "prefix_aware", device=20, host=9)
    fleet.run()
    router: Any = fleet._front_end._router
    for member in fleet.members:
        view = member.core.view
        kept = [0, 0]
        for node in view.nodes():
            for tier in (0, 1):
                pages = node.pages[tier][0]
                kept[tier] += 0 if pages is None else len(pages)
        for tier in (0, 1):
            bit = 1 << 2 * member.place + tier
            assert sum(bool(bits & bit) for bits in router.places.values()) == kept[tier]


def test_a_request_that_is_lost_or_served_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = make(conversations(3, 2), (3, 0))
    monkeypatch.setattr(fleet.members[1].engine, "arrive", lambda job: None)
    with pytest.raises(StuckError, match="4 of 6 requests end"):
        fleet.run()
    arrive = Fleet._arrive

    def twice(self: Fleet, job: Job) -> None:
        arrive(self, job)
        if job.index == 5:
            self.clock.after(10**10, lambda: arrive(self, job))

    monkeypatch.setattr(Fleet, "_arrive", twice)
    with pytest.raises(SimError, match=r"request 5 \(ends-once\): sent to replica \d, ended on \d"):
        make(conversations(3, 2), (3, 0)).run()
