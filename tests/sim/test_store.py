"""The simulated store: its time, what it answers, what goes wrong with it; and whole runs with it,
which end, and whose bytes are right."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.actions import Delete, Fetch, Lookup, Piece, Store
from hicache.core.events import FetchDone, LookupDone, StoreDone
from hicache.storage.base import Status
from sim.clock import Clock
from sim.engine.running import PrefetchLimit
from sim.options import EngineOptions, WorldOptions
from sim.replica import WorldStorage
from sim.storage.contents import MILLION, Faulty, Medium, StoreOptions
from sim.storage.executor import ImmediateStore, PageBytes, TimedStore
from sim.workload import Job
from sim.world import World
from tests.sim.rig import CONFIGURATIONS, SMALL, idle, make, run
from tests.sim.workloads import PAGE, Prompts, shared_prefixes

MS = 1_000_000
SIZES = {"full": 1_000_000, "swa": 1_000_000, "mamba": 2_000_000}
D = [bytes([number]) * 32 for number in range(12)]


def piece(first: int, end: int, component: str = "full") -> Piece:
    return Piece(component, first, tuple(D[first:end]), np.arange(first, end))


def timed(contents: Medium | None = None, **options: Any) -> tuple[Clock, TimedStore, Medium]:
    """1 MB takes 1 ms to read and 2 ms to write; a batch takes 1 ms more."""
    clock, medium = Clock(), contents or Medium(SIZES)
    store_options = StoreOptions(10**9, 5 * 10**8, latency_ns=MS, **options)
    faulty = Faulty(medium, store_options) if {"loss", "lying", "corrupt"} & {*options} else medium
    store = TimedStore(clock, store_options, faulty, SIZES, PageBytes(None))
    return clock, store, medium


def ended(clock: Clock, store: TimedStore) -> list[tuple[int, Any]]:
    """Runs to the end; the replies with their times in ms."""
    numbers: list[tuple[int, Any]] = []
    store.listener = lambda: numbers.extend((clock.now_ns // MS, reply) for reply in store.poll())
    while clock.next_ns() >= 0:
        clock.step()
    return numbers


def test_batches_of_a_direction_share_its_rate_and_wait_their_latency_at_once() -> None:
    clock, store, _ = timed()
    store.submit(Store(1, (piece(0, 2),)))
    store.submit(Store(2, (piece(2, 3),)))
    store.submit(Lookup(3, 0, 0, (D[0],), 0, (0, 0, 0)))
    result = ended(clock, store)
    assert result == [(1, LookupDone(3, 0)), (5, StoreDone(1, 2)), (7, StoreDone(2, 1))]
    store.submit(Fetch(4, 0, 0, (piece(0, 3),), 3))
    assert ended(clock, store) == [(11, FetchDone(4, 3))]
    assert (store.writes.bytes, store.reads.bytes) == (3_000_000, 3_000_000)
    assert (store.writes.busy_ns, store.reads.busy_ns) == (6 * MS, 3 * MS)
    assert not store.unanswered


@pytest.mark.parametrize(("slow", "times"), [(0, 1), (MILLION, 10)])
def test_an_abandoned_fetch_ends_with_what_has_arrived(slow: int, times: int) -> None:
    """times: as many as a batch takes when the store is slow."""
    clock, store, medium = timed(slow=slow)
    medium.write("full", D)
    store.submit(Fetch(1, 0, 0, (piece(0, 4),), 4))
    store.submit(Fetch(2, 0, 4, (piece(4, 5),), 1))
    store.submit(Fetch(3, 0, 5, (piece(5, 6),), 1))
    for transfer in (1, 3):
        clock.after(3 * times * MS, partial(store.abandon, transfer))
    expected = [(3, FetchDone(1, 2)), (3, FetchDone(3, 0)), (4, FetchDone(2, 1))]
    assert ended(clock, store) == [(times * at, reply) for at, reply in expected]
    assert (store.reads.bytes, store.reads.busy_ns) == (3_000_000, 3 * times * MS)


def test_a_fetch_answers_the_run_of_pages_that_arrived_in_every_piece() -> None:
    medium = Medium(SIZES)
    store = ImmediateStore(medium, tuple(SIZES), PageBytes(None))
    medium.write("full", D[:6])
    medium.write("swa", [D[4], D[5]])
    pieces = (piece(2, 6), piece(4, 6, "swa"), piece(5, 6, "mamba"))

    def fetched(*some: Piece) -> int:
        store.submit(Fetch(1, 0, 2, some, 4))
        return int(store.poll()[0].pages)  # type: ignore[union-attr]

    assert fetched(*pieces[:2]) == 4
    assert fetched(*pieces) == 3, "the state is missing"
    assert fetched(piece(2, 4)) == 4, "the tree has the last two"


def test_the_least_recently_used_values_leave_a_full_store() -> None:
    medium = Medium(SIZES, size_bytes=3_000_000)
    medium.write("full", D[:3])
    assert medium.read("full", D[:1]) == [Status.DONE]
    medium.write("mamba", D[:1])
    assert medium.lookup("full", D[:3]) == [True, False, False]
    assert medium.bytes == 3_000_000
    assert Medium(SIZES, 1_500_000).write("mamba", D[:1]) == [Status.FULL]
    assert medium.clear()
    assert medium.lookup("mamba", D[:1]) == [False]


@pytest.mark.parametrize(
    ("fault", "lookup", "read"),
    [
        ("loss", False, Status.MISSING),
        ("lying", True, Status.MISSING),
        ("corrupt", True, Status.CORRUPT),
    ],
)
def test_faults_are_seen_by_their_kind(fault: str, lookup: bool, read: Status) -> None:
    contents = Faulty(Medium(SIZES), StoreOptions(**{fault: MILLION}))
    if fault != "lying":
        contents.write("full", D[:1])
    assert contents.lookup("full", D[:1]) == [lookup]
    assert contents.read("full", D[:1]) == [read]
    never = Faulty(Medium(SIZES), StoreOptions(loss=1))
    never.write("full", D[:3])
    assert never.read("full", D[:3]) == [Status.DONE] * 3


def test_a_dead_store_fails_and_a_hanging_one_answers_what_is_abandoned() -> None:
    clock, store, medium = timed(dead_at_ns=3 * MS, back_at_ns=20 * MS)
    medium.write("full", D)
    medium.write("swa", D)
    medium.write("mamba", D)
    lookup = Lookup(1, 0, 0, tuple(D[:2]), 0, (0, 1, 1))
    for transfer, at_ms in ((1, 0), (2, 4), (3, 30)):
        item = lookup._replace(transfer=transfer)
        clock.after(at_ms * MS, partial(store.submit, item))
    result = ended(clock, store)
    assert result == [(1, LookupDone(1, 2)), (5, LookupDone(2)), (31, LookupDone(3, 2))]

    clock, store, medium = timed(hangs_at_ns=0)
    medium.write("full", D)
    store.submit(lookup)
    store.submit(Fetch(2, 0, 0, (piece(0, 2),), 2))
    store.submit(Store(3, (piece(0, 1),)))
    store.submit(Delete(4))
    for transfer, at_ms in ((2, 5), (1, 7)):
        clock.after(at_ms * MS, partial(store.abandon, transfer))
    assert ended(clock, store) == [(5, FetchDone(2)), (7, LookupDone(1))]
    assert store.unanswered == 2
    assert not store.is_unanswered(1)


BYTES = 1 << 20
FAST = StoreOptions(latency_ns=200_000)
LIMIT = PrefetchLimit(2 * 10**9, 1000)
POOLS = {"full": ((16, 9), (40, 60)), "swa": ((9, 9), (20, 30)), "mamba": ((12, 6), (24, 12))}


def stored(
    components: tuple[str, ...] = ("full",),
    options: StoreOptions = FAST,
    medium: Medium | None = None,
    limit: PrefetchLimit | None = LIMIT,
) -> WorldStorage:
    value_bytes = dict.fromkeys(components, BYTES)
    contents = medium if medium is not None else Medium(value_bytes, options.size_bytes)
    return WorldStorage(Faulty(contents, options), options, value_bytes, limit)


STORES: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 10**6),
    "count": st.integers(1, 30),
    "components": st.sampled_from(CONFIGURATIONS),
    "small": st.booleans(),
    "policy": st.sampled_from(("write_through", "write_through_selective", "write_back")),
    "prefetch": st.sampled_from(("best_effort", "wait_complete", "timeout")),
    "threshold": st.sampled_from((0, 2 * PAGE)),
    "gap_ns": st.sampled_from((10**5, 10**7, 3 * 10**8)),
    "period": st.sampled_from((0, 3)),
    "engine": st.sampled_from((SMALL, EngineOptions())),
    "store": st.builds(
        StoreOptions,
        latency_ns=st.sampled_from((0, 10**6, 10**9)),
        size_bytes=st.sampled_from((0, 20 * BYTES)),
        loss=st.sampled_from((0, 200_000)),
        lying=st.sampled_from((0, 200_000)),
        corrupt=st.sampled_from((0, 200_000)),
        slow=st.sampled_from((0, 300_000)),
        dead_at_ns=st.sampled_from((-1, 10**8)),
    ),
}


@settings(max_examples=8, deadline=None)
@given(st.fixed_dictionaries(STORES))
def test_every_run_with_a_store_ends_checked_and_equal_to_stepping_one_token_at_a_time(
    drawn: dict[str, Any],
) -> None:
    workload = shared_prefixes(drawn["seed"], drawn["count"], gap_ns=drawn["gap_ns"])
    components, place, period = drawn["components"], not drawn["small"], drawn["period"]
    options = WorldOptions(
        checks="every", faults=lambda number, _: bool(period) and number % period == 1
    )
    sizes = [tuple(POOLS[name][place][tier] for name in components) for tier in (0, 1)]
    limit = None if drawn["prefetch"] == "best_effort" else LIMIT
    given_ = {
        "components": components,
        "write_policy": drawn["policy"],
        "prefetch_policy": drawn["prefetch"],
        "prefetch_threshold_tokens": drawn["threshold"],
        "swa_window": 2 * PAGE if "swa" in components else 0,
        "mamba_interval": PAGE if "mamba" in components else 0,
    }

    def world(engine: EngineOptions, options: WorldOptions) -> World:
        storage = stored(components, drawn["store"], limit=limit)
        return make(workload, *sizes, engine=engine, options=options, storage=storage, **given_)

    item = world(drawn["engine"], options)
    result = item.run()
    idle(item)
    assert item.store is not None
    assert not item.store.unanswered
    for request, job in zip(result.requests, workload.jobs, strict=True):
        reused = request.device_tokens + request.host_tokens + request.storage_tokens
        assert reused + request.computed_tokens == job.input_length
        assert min(request.host_tokens, request.storage_tokens) >= 0
    stepped = world(replace(drawn["engine"], fast_forward=False), replace(options, checks="off"))
    assert stepped.run() == replace(result, byte_checks=0, access_checks=0)


def test_a_store_that_hangs_costs_a_request_its_limit_and_blocks_nobody() -> None:
    prompts = [[sign * token for token in range(10 * PAGE)] for sign in (1, -1, 1000)]
    jobs = [Job(at, at and 10**9, 10 * PAGE, 1) for at in range(3)]
    workload = Prompts([*jobs, Job(3, 10**9 + 1, PAGE, 1)], [*prompts, prompts[0][:PAGE]])
    dead = StoreOptions(hangs_at_ns=5 * 10**8)
    limit = PrefetchLimit(3 * 10**9, 10**6)
    storage, engine = stored(options=dead, limit=limit), EngineOptions(token_budget=10 * PAGE)
    requests = run(workload, 60, 60, storage=storage, engine=engine).requests
    waited_ns = limit.base_ns + limit.token_ns * 9 * PAGE
    assert requests[1].admit_ns - requests[1].arrival_ns == waited_ns
    assert requests[2].admit_ns == requests[1].finish_ns, "both have waited, and keep their order"
    assert requests[3].finish_ns < requests[1].admit_ns, "those behind them go on"
