"""Every configuration of components, in small pools: all that is read, copied and kept is exact."""

from dataclasses import replace
from typing import Any

import pytest

from hicache.core.errors import CallerError
from sim.options import EngineOptions
from sim.workload import Job
from tests.sim.rig import CONFIGURATIONS, MODEL, POLICIES, SMALL, make, run
from tests.sim.runs import idle
from tests.sim.workloads import PAGE, Prompts, alone, hybrid, shared_prefixes

_HYBRIDS = CONFIGURATIONS[1:]


def _sizes(components: tuple[str, ...], of: dict[str, int]) -> tuple[int, ...]:
    return tuple(of[name] for name in components)


def _rules(components: tuple[str, ...], window: int, interval: int) -> dict[str, Any]:
    return {
        "components": components,
        "swa_window": window if "swa" in components else 0,
        "mamba_interval": interval if "mamba" in components else 0,
    }


def _conversations(rounds: int, requested: int = 1, clients: int = 3, answer: int = 9) -> Prompts:
    """Clients in turns; each prompt is the one before, what was answered, and some more. With
    `requested`, all ask it that often, so that one boundary is used more than once."""
    jobs: list[Job] = []
    prompts: list[list[int]] = []
    spoken: dict[int, list[int]] = {client: [] for client in range(clients)}
    for number in range(rounds * clients * requested):
        client, turn = number % clients, number // (clients * requested)
        message = [10**5 * (client + 1) + 100 * turn + token for token in range(11)]
        prompt = spoken[client] + message
        jobs.append(Job(number, number * 10**9, len(prompt), answer))
        prompts.append(prompt)
        answered = [10**6 * (number + 1) + token for token in range(answer)]
        if number // clients % requested == requested - 1:
            spoken[client] = prompt + answered[:-1]
    return Prompts(jobs, prompts)


_PRESSED = {"full": 56, "swa": 14, "mamba": 12}
_KEPT = {"full": 160, "swa": 100, "mamba": 60}


@pytest.mark.parametrize(
    ("components", "policy"), [*zip(CONFIGURATIONS, (*POLICIES, POLICIES[0]), strict=True)]
)
def test_small_pools_evict_and_load_each_component(
    components: tuple[str, ...], policy: str
) -> None:
    """Only loaded pages cross the link, in as many groups as there are layers, so that each group
    holds the pool of one component."""
    rules = _rules(components, 6, PAGE)
    sizes = _sizes(components, _PRESSED), _sizes(components, _KEPT)
    engine = replace(SMALL, layer_groups=MODEL.layers)
    world = make(
        _conversations(7, requested=2), *sizes, engine=engine, write_policy=policy, **rules
    )
    result = world.run()
    idle(world)
    assert all(device > 0 for _, device, _ in result.evicted)
    loaded = [
        sum(each) for each in zip(*(request.loaded for request in result.requests), strict=True)
    ]
    assert min(loaded) > 0
    assert sum(request.host_tokens for request in result.requests) > 0
    assert result.byte_checks > 10 * len(result.requests)
    model = hybrid(components, 6, MODEL) if len(components) > 1 else MODEL
    counts = zip(components, loaded, strict=True)
    moved = sum(count * model.bytes_per_page(name, PAGE) for name, count in counts)
    assert result.h2d.bytes == moved


@pytest.mark.parametrize(
    ("seed", "count", "window", "device", "host"),
    [(591, 31, 16, (20, 5, 2), (1, 3, 1)), (1008, 48, 6, (13, 3, 3), (60, 40, 0))],
)
def test_a_window_that_begins_inside_a_reused_node_does_not_starve_its_request(
    seed: int, count: int, window: int, device: tuple[int, ...], host: tuple[int, ...]
) -> None:
    """The smallest pools: what the window has left must go, though it is half of a node."""
    engine = EngineOptions(token_budget=16, max_running=1, order="longest-prefix")
    rules = _rules(CONFIGURATIONS[3], window, PAGE)
    workload = shared_prefixes(seed, count, gap_ns=10**6)
    world = make(workload, device, host, engine=engine, load_threshold_pages=3, **rules)
    assert len(world.run().requests) == count
    idle(world)


def test_the_component_that_limits_a_hit_is_named() -> None:
    """The second prompt leaves the first where that left neither a window nor a state; it leaves
    both there itself, so the third hits."""
    prompts = [list(range(1000 * n, 1000 * n + 80)) for n in range(3)]
    prompts = [list(range(40)) + prompt[40:] for prompt in prompts]
    jobs = [Job(index, index * 10**9, len(prompt), 1) for index, prompt in enumerate(prompts)]
    for components in _HYBRIDS:
        count = len(components)
        sizes = (200,) * count, (0,) * count
        results = run(Prompts(jobs, prompts), *sizes, **_rules(components, 8, PAGE)).requests
        assert [result.depths for result in results] == [
            (0,) * count,
            (40,) + (0,) * (count - 1),
            (40,) * count,
        ]
        assert [result.capped for result in results] == ["", components[1], ""]
        assert [result.device_tokens for result in results] == [0, 0, 40]


def test_a_pool_that_is_too_small_is_named_with_its_need() -> None:
    rules, growing = _rules(("full", "swa"), 8, PAGE), alone([0] * 6, 8, 30)
    with pytest.raises(CallerError, match=r"device pool of full: expected at least 10 pages for"):
        run(growing, (9, 12), (0, 0), **rules)
    with pytest.raises(CallerError, match=r"device_pages of swa: expected at least 3, .*found 2"):
        run(growing, (20, 2), (0, 0), **rules)
