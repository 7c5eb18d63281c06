"""Replicas behind a router: each is a replica alone, work is divided as the router says, and a
fleet that loses or misplaces a request is caught. Prefill and decode replicas: what the KV link may
change and what not, and a transfer that is lost or torn is caught."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from sim.device.simulated import SimDevice
from sim.errors import SimError, StuckError, WrongBytesError
from sim.fleet import Fleet, FleetResult, KvLink
from sim.options import EngineOptions, KvLinkOptions, RouterOptions
from sim.workload import Job
from tests.sim.workloads import PAGE, Prompts, alone, in_sessions, shared_prefixes

from . import rig
from .fleets import INSTANT, PAGE_BYTES, ROUTERS, Part, conversations, make, reused, run


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
    size = {"device": 200, "host": 0}
    total = sum(request.device_tokens + request.host_tokens for request in ceiling.requests)
    aware, turns = (run(workload, (3, 0), name, **size) for name in ("prefix_aware", "round_robin"))
    assert reused(aware) == total
    assert reused(turns) == total  # 6 clients in turn: each is always sent to the same replica
    unlucky = conversations(7, 5)  # a client's turns go to another replica each time
    aware, turns = (run(unlucky, (3, 0), name, **size) for name in ("prefix_aware", "round_robin"))
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


_SLOW = KvLinkOptions(200_000_000, 1_000_000)
_ROOM = {"device": 400, "host": 0}


@settings(max_examples=4, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (2, 0), (4, 0)]),
    st.builds(RouterOptions, st.sampled_from(ROUTERS), delay_ns=st.sampled_from([0, 30_000_000])),
    st.sampled_from([13, 20, 40]),
    st.sampled_from([0, 9, 60]),
    st.sampled_from([INSTANT, KvLinkOptions(), _SLOW]),
    st.sampled_from([16, 8192]),
)
def test_drawn_fleets_serve_every_request_once_and_every_core_is_checked(
    seed: int,
    members: tuple[int, int],
    router: RouterOptions,
    device: int,
    host: int,
    link: KvLinkOptions,
    token_budget: int,
) -> None:
    workload = in_sessions(shared_prefixes(seed, 24))
    rest: dict[str, Any] = {"engine": EngineOptions(token_budget=token_budget), "link": link}
    first, again = (
        run(workload, members, router, device=device, host=host, **rest) for _ in range(2)
    )
    assert (first.digest, first.choices) == (again.digest, again.choices)
    assert [request.request for request in first.requests] == list(range(24))
    for item, job in zip(first.requests, workload.jobs, strict=True):
        assert item.output_length == job.output_length
        assert (item.request in first.trips) == (members[1] > 0 and job.output_length > 1)
        assert item.queue_ns >= 0
        assert (item.finish_ns > item.first_token_ns) == (job.output_length > 1)
    for trip in first.trips.values():
        assert trip.left_ns <= trip.admitted_ns <= trip.began_ns <= trip.arrived_ns
        length = workload.jobs[trip.request].input_length
        assert trip.pages + trip.cached == -(-length // PAGE)
    assert first.link.bytes == sum(trip.pages for trip in first.trips.values()) * PAGE_BYTES
    decoded = [
        request.request for member in first.members[members[0] :] for request in member.requests
    ]
    assert sorted(decoded) == sorted(first.trips)


def test_an_instant_link_delays_a_lone_request_by_nothing() -> None:
    """It ends when it would on one replica, but for the rounding of the transfer's time."""
    workload = alone([0], 22, 5)
    output, divided = rig.run(workload, 400, 0), run(workload, (1, 1), link=INSTANT, **_ROOM)
    last = divided.requests[0]
    assert last == output.requests[0]._replace(finish_ns=last.finish_ns)
    assert last.finish_ns == output.requests[0].finish_ns + 1
    slow = run(workload, (1, 1), link=_SLOW, **_ROOM)
    pages = -(-22 // PAGE)
    late_ns = 1_000_000 + -(-pages * PAGE_BYTES * 10**9 // 200_000_000)
    assert slow.requests[0].finish_ns == output.requests[0].finish_ns + late_ns
    assert slow.requests[0].first_token_ns == output.requests[0].first_token_ns


@pytest.mark.parametrize("members", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_link_bounds_the_throughput(members: tuple[int, int]) -> None:
    value: dict[str, Any] = {"link": _SLOW, **_ROOM}
    workload, slow = alone(range(0, 16_000, 1000), 22, 5), EngineOptions(fast_forward=False)
    output = run(workload, members, **value)
    assert output.requests == run(workload, members, engine=slow, **value).requests
    pages = -(-22 // PAGE)
    assert output.link.bytes == 16 * pages * PAGE_BYTES
    each_ns = 1_000_000 + -(-pages * PAGE_BYTES * 10**9 // 200_000_000)
    assert output.link.busy_ns == 16 * each_ns
    least_ns = 16 * each_ns // min(members)
    assert least_ns <= output.makespan_ns <= least_ns * 1.5
    waits = [trip.began_ns - trip.admitted_ns for trip in output.trips.values()]
    assert max(waits) >= (16 // min(members) - 2) * each_ns  # the first is alone


def test_pages_that_the_decode_replica_has_are_not_moved() -> None:
    """The second turn finds the pages of the first, and its answer, where it decodes."""
    jobs = [Job(0, 0, 24, 9), Job(1, 10**9, 40, 3)]
    workload = Prompts(jobs, [list(range(24)), list(range(40))])
    output = run(workload, (1, 1), link=_SLOW, **_ROOM)
    assert [(trip.cached, trip.pages) for trip in output.trips.values()] == [(0, 6), (6, 4)]
    same = Prompts([jobs[0], Job(1, 10**9, 24, 3)], [list(range(24))] * 2)
    again = run(same, (1, 1), link=_SLOW, **_ROOM).trips[1]
    assert (again.cached, again.pages, again.bytes) == (6, 0, 0)
    assert again.arrived_ns == again.admitted_ns


def test_a_full_decode_replica_makes_requests_wait_on_prefill() -> None:
    """Their pages stay there, and the wait is no part of the time to first token."""
    workload = alone(range(0, 8000, 1000), 22, 40)
    ample, tight = (run(workload, (1, 1), device=device, host=0) for device in (400, 16))
    waits = [
        max(trip.admitted_ns - trip.left_ns for trip in item.trips.values())
        for item in (ample, tight)
    ]
    assert waits[1] > 10 * waits[0]
    assert tight.requests[0].first_token_ns == ample.requests[0].first_token_ns


def test_only_pages_that_can_move_are_divided() -> None:
    workload = alone([0], 22, 5)
    fleet = make(workload, (1, 1))
    two = {"components": ("full", "mamba"), "device_pages": (24, 9), "host_pages": (0, 0)}
    config: Any = replace(fleet.members[0].core.view.config, **two)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="only full attention moves"):
        type(fleet)(workload, config, rig.MODEL, rig.PROFILE, fleet._fleet)


def _broken() -> FleetResult:
    return run(alone(range(0, 12_000_000, 2_000_000), 22, 30), (1, 1), link=_SLOW, **_ROOM)


def test_a_transfer_that_is_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KvLink, "send", lambda *_: None)
    with pytest.raises(StuckError, match="requests are left") as caught:
        _broken()
    assert caught.value.__notes__ == ["replica: 0"]


def test_bytes_that_do_not_arrive_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    publish = SimDevice.publish

    def torn(self: SimDevice, stream: Any, access: Any, tags: Any) -> None:
        if "transfer of request 3" not in access.why:
            publish(self, stream, access, tags)

    monkeypatch.setattr(SimDevice, "publish", torn)
    with pytest.raises(WrongBytesError, match="request 3"):
        _broken()
