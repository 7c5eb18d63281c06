"""Replicas behind a router: each is a replica alone, work is divided as the router says, and a
fleet that loses or misplaces a request is caught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.types import Tier
from sim.errors import SimError, StuckError
from sim.fleet import Fleet
from sim.options import EngineOptions, RouterOptions, WorldOptions
from sim.routers import PrefixIndex
from sim.workload import Job
from tests.sim.test_queueing import poisson, service_ns
from tests.sim.workloads import Prompts, alone, in_sessions, shared_prefixes

from . import rig
from .fleets import Part, conversations, make, reused, run

ROUTERS = ("round_robin", "least_loaded", "prefix_aware", "session_sticky")
_TOKENS = 24  # of a request of queueing.service_ns
_OFF = WorldOptions(checks="off", times="pure-roofline")


@pytest.mark.parametrize("router", ROUTERS)
def test_one_replica_behind_any_router_is_the_plain_replay(router: str) -> None:
    workload = in_sessions(shared_prefixes(5, 20))
    plain = rig.run(workload, 16, 9)
    found = run(workload, (1, 0), router, device=16, host=9)
    assert found.digest == plain.digest
    assert found.requests == plain.requests


@pytest.mark.parametrize("seed", range(2))
def test_each_replica_is_a_replay_of_what_was_sent_to_it(seed: int) -> None:
    """Whatever the other replicas do meanwhile."""
    workload = shared_prefixes(seed, 30)
    every = enumerate(workload.jobs)
    workload.jobs = [replace(job, arrival_ns=at * 7_000_000, after=-1) for at, job in every]
    found = run(workload, (3, 0), device=16)
    for place, member in enumerate(found.members):
        sent = [index for index, chosen in found.choices.items() if chosen == place]
        assert sent == list(range(place, 30, 3))
        assert member.digest == rig.run(Part(workload, sent), 16, 40).digest


@settings(max_examples=5, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(ROUTERS),
    st.integers(2, 4),
    st.sampled_from([13, 20, 40]),
    st.sampled_from([0, 9, 60]),
    st.sampled_from([0, 30_000_000]),
)
def test_drawn_fleets_serve_every_request_once_and_every_core_is_checked(
    seed: int, router: str, replicas: int, device: int, host: int, delay_ns: int
) -> None:
    workload = in_sessions(shared_prefixes(seed, 30))
    options = RouterOptions(router, delay_ns=delay_ns)
    first, again = (
        run(workload, (replicas, 0), options, device=device, host=host) for _ in range(2)
    )
    assert [one.request for one in first.requests] == list(range(30))
    assert (first.digest, first.choices) == (again.digest, again.choices)
    assert sum(len(one.requests) for one in first.members) == 30


def test_prefix_aware_hits_what_one_cache_would_where_all_fits() -> None:
    workload = conversations(6, 5)
    ceiling = rig.run(workload, 600, 0)
    room = {"device": 200, "host": 0}
    whole = sum(one.device_tokens + one.host_tokens for one in ceiling.requests)
    aware, turns = (run(workload, (3, 0), name, **room) for name in ("prefix_aware", "round_robin"))
    assert reused(aware) == whole
    assert reused(turns) == whole  # 6 clients in turn: each is always sent to the same replica
    unlucky = conversations(7, 5)  # a client's turns go to another replica each time
    aware, turns = (run(unlucky, (3, 0), name, **room) for name in ("prefix_aware", "round_robin"))
    assert reused(aware) == 4 * 7 * 24 + 7 * (12 + 24 + 36) > 2 * reused(turns)


def test_a_session_stays_on_its_replica() -> None:
    found = run(conversations(5, 4), (3, 0), "session_sticky", device=200)
    for client in range(5):
        assert len({found.choices[index] for index in range(client, 20, 5)}) == 1
    assert len({*found.choices.values()}) == 3


def test_the_index_knows_what_the_caches_have() -> None:
    """At the end the events say what the trees say: they are all that the router was told."""
    fleet = make(shared_prefixes(5, 60), (3, 0), "prefix_aware", device=20, host=9)
    fleet.run()
    index: Any = fleet._desk._router.index  # type: ignore[attr-defined]
    for member in fleet.members:
        view = member.core.view
        held = [0, 0]
        for node in view.nodes():
            for tier in (0, 1):
                pages = node.pages[tier][0]
                held[tier] += 0 if pages is None else len(pages)
        for tier in (0, 1):
            bit = 1 << 2 * member.place + tier
            assert sum(bool(bits & bit) for bits in index._places.values()) == held[tier]


def test_overlap_weight_divides_locality_from_balance() -> None:
    """A prompt is known to one replica only, which is busy with requests for it."""
    jobs = [Job(index, 10**8 * (index > 0) + index, 24, 200) for index in range(9)]
    shared = Prompts(jobs, [list(range(24)) for _ in jobs])
    heavy, none = (
        run(shared, (3, 0), RouterOptions("prefix_aware", overlap_weight=weight), device=400)
        for weight in (1000, 0)
    )
    counts = [[len(one.requests) for one in result.members] for result in (heavy, none)]
    assert counts == [[9, 0, 0], [3, 3, 3]]


def _waits(arrivals: Sequence[int], replicas: int, router: str) -> list[int]:
    engine = EngineOptions(max_running=1)
    workload = alone(arrivals, _TOKENS)
    sizes = {"device": 20, "host": 0}
    rest: dict[str, Any] = {"engine": engine, "options": _OFF, "observers": [[]] * replicas}
    found = run(workload, (replicas, 0), router, **sizes, **rest)
    return [one.queue_ns for one in found.requests]


def test_least_loaded_is_between_one_queue_for_all_and_a_random_split() -> None:
    """Equal requests at random times, on replicas for one request each. One queue for all replicas
    (M/D/c, by the recursion of Kiefer and Wolfowitz) is the best that any router can do; a random
    split makes M/D/1 queues, whose mean wait Pollaczek and Khinchine give."""
    service, replicas, load = service_ns(1), 3, 0.8
    arrivals = poisson(load * replicas / (service / 1e9), 600, 7)
    least, turns = (_waits(arrivals, replicas, name) for name in ("least_loaded", "round_robin"))
    free, best = [0] * replicas, 0
    for arrival in arrivals:
        free.sort()
        begin = max(arrival, free[0])
        best += begin - arrival
        free[0] = begin + service
    split = load * service / (2 * (1 - load)) * len(arrivals)
    assert best <= sum(least) <= sum(turns) < split


def test_equal_requests_at_once_are_divided_evenly() -> None:
    service = service_ns(1)
    for router in ("least_loaded", "round_robin", "prefix_aware"):
        waits = sorted(_waits([0] * 12, 4, router))
        assert waits == [number // 4 * service for number in range(12)]


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
    with pytest.raises(SimError, match=r"request 5: ended on replica \d"):
        make(conversations(3, 2), (3, 0)).run()


_HOT = (b"system", b"prompt", b"tail")


def test_the_pages_of_a_prefix_that_requests_look_for_stay() -> None:
    index = PrefixIndex(2, 6)
    index.stored(0, Tier.DEVICE, _HOT)
    for turn in range(20):
        assert index.leading([*_HOT, b"new %d" % turn]) == [3, 0]
        index.stored(1, Tier.DEVICE, [b"once %d" % turn])
    assert (len(index), index.dropped) == (6, 17)


def test_a_known_page_that_is_stored_again_is_as_new_as_the_others() -> None:
    index = PrefixIndex(2, 4)
    index.stored(0, Tier.DEVICE, _HOT)
    index.stored(1, Tier.DEVICE, [b"once"])
    index.stored(1, Tier.DEVICE, _HOT)
    index.stored(1, Tier.DEVICE, [b"again"])
    assert index.leading(_HOT) == [3, 3]
