"""Whole runs with a simulated store: they end, and their bytes are right."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.running import PrefetchLimit
from sim.options import EngineOptions, WorldOptions
from sim.replica import WorldStorage
from sim.storage.contents import Faulty, Medium, StoreOptions
from sim.workload import Job
from sim.world import World
from tests.sim.rig import CONFIGURATIONS, SMALL, idle, make, run
from tests.sim.workloads import PAGE, Prompts, shared_prefixes

BYTES = 1 << 20
FAST = StoreOptions(latency_ns=200_000)
LIMIT = PrefetchLimit(2 * 10**9, 1000)
SIZES = {"full": ((16, 9), (40, 60)), "swa": ((9, 9), (20, 30)), "mamba": ((12, 6), (24, 12))}


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
    sizes = [tuple(SIZES[name][place][tier] for name in components) for tier in (0, 1)]
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
