"""Small worlds for tests: workloads whose prefixes overlap, and a model that is quick to run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hicache import models
from hicache.core import registry
from hicache.core.types import Key, PageState, Tier
from hicache.models import ModelDescription
from sim.hardware import profile as hardware
from sim.keyed_draw import draw
from sim.options import EngineOptions, WorldOptions
from sim.workload import Job
from sim.world import TimedResult, World
from tests.configs import configured, said

PAGE = 4
MODEL = models.get("llama-3.1-8b")
PROFILE = hardware.get("h100")
POLICIES = ("write_through", "write_through_selective", "write_back")
SMALL = EngineOptions(token_budget=16, max_running=4, growth_tokens=6, layer_groups=3)
# What every drawn world has, by name.
WORLDS: dict[str, st.SearchStrategy[Any]] = {
    "seed": st.integers(0, 10**6),
    "count": st.integers(1, 40),
    "device": st.sampled_from([13, 16, 20, 40]),
    "host": st.sampled_from([0, 3, 9, 60]),
    "policy": st.sampled_from(POLICIES),
    "engine": st.builds(
        EngineOptions,
        token_budget=st.sampled_from([PAGE, 16, 64, 8192]),
        max_running=st.sampled_from([1, 3, 100]),
        growth_tokens=st.sampled_from([1, 6, 64]),
        order=st.sampled_from(registry.names(registry.SCHEDULERS)),
        layer_groups=st.sampled_from([1, 3, 4]),
    ),
    "gap_ns": st.sampled_from([10**5, 10**7, 3 * 10**8]),
    "lag_ns": st.sampled_from([0, 5000, 5 * 10**7]),
    "period": st.sampled_from([0, 0, 2, 3, 7]),
}
CONFIGURATIONS = (("full",), ("full", "swa"), ("full", "mamba"), ("full", "swa", "mamba"))


def hybrid(
    components: tuple[str, ...], window: int = 0, model: ModelDescription = MODEL
) -> ModelDescription:
    """The model with its layers dealt out to the components in turn."""
    (kv,) = model.pools
    state = {"kind": "state", "parts": ("state",), "page_rows": 1, "window": 1}
    special: dict[str, dict[str, Any]] = {"full": {}, "swa": {"window": window}, "mamba": state}
    pools = tuple(
        replace(
            kv,
            name=name,
            component=name,
            layers=kv.layers[place :: len(components)],
            **special[name],
        )
        for place, name in enumerate(components)
    )
    return replace(model, pools=pools)


class Prompts:
    """A workload from explicit token lists, the output of each job included and its own."""

    def __init__(self, jobs: list[Job], prompts: list[list[int]], page_size: int = PAGE) -> None:
        self.jobs = jobs
        self.page_size = page_size
        self._prompts = prompts

    def key(self, job: Job, length: int) -> Key:
        prompt = self._prompts[job.index]
        output = [10**6 * (job.index + 1) + number for number in range(job.output_length)]
        return Key.from_tokens((prompt + output)[:length], self.page_size)


def shared_prefixes(
    seed: int, count: int, *, longest: int = 40, outputs: int = 12, gap_ns: int = 20_000_000
) -> Prompts:
    """`count` jobs, each beginning like one before it, some waiting for an earlier one to end."""
    jobs: list[Job] = []
    prompts: list[list[int]] = []
    now_ns = 0
    for index in range(count):
        now_ns += draw(gap_ns, seed, index, "gap")
        length = 1 + draw(longest, seed, index, "length")
        shared: list[int] = []
        if prompts and draw(4, seed, index, "shares"):
            source = prompts[draw(len(prompts), seed, index, "source")]
            shared = source[: draw(len(source) + 1, seed, index, "cut")][: length - 1]
        prompt = shared + [index * 1000 + number for number in range(length - len(shared))]
        after = draw(index, seed, index, "after") if index and not draw(4, seed, index, "c") else -1
        arrival_ns = draw(gap_ns, seed, index, "think") if after >= 0 else now_ns
        output = draw(outputs, seed, index, "output")
        jobs.append(Job(index, arrival_ns, length, output, after))
        prompts.append(prompt)
    return Prompts(jobs, prompts)


def make(
    workload: Prompts,
    device: int | tuple[int, ...] = 24,
    host: int | tuple[int, ...] = 40,
    *,
    engine: EngineOptions | None = None,
    options: WorldOptions | None = None,
    profile: hardware.HardwareProfile = PROFILE,
    components: tuple[str, ...] = ("full",),
    **settings: Any,
) -> World:
    """device, host: pages per component, or one number for the only one."""
    config = configured(
        workload.page_size,
        (device,) if isinstance(device, int) else device,
        (host,) if isinstance(host, int) else host,
        components,
        **settings,
    )
    options = options or WorldOptions(checks="every")
    model = hybrid(components, said(config, "swa_window")) if len(components) > 1 else MODEL
    return World(workload, config, model, profile, engine=engine, options=options)


def run(
    workload: Prompts,
    device: int | tuple[int, ...] = 24,
    host: int | tuple[int, ...] = 40,
    **rest: Any,
) -> TimedResult:
    return make(workload, device, host, **rest).run()


def tokens(text: str) -> list[int]:
    """PAGE tokens per letter."""
    return np.repeat([ord(letter) for letter in text], PAGE).tolist()


def idle(world: World) -> None:
    """Nothing admitted, in flight, locked or lent; every page of every pool is free or cached."""
    view = world.core.view
    assert not view.requests
    assert not view.flights
    assert world.controller.unanswered == 0
    for tier in (Tier.DEVICE, Tier.HOST):
        for index in range(len(view.components)):
            pool = view.pool(tier, index)
            assert pool.counts[PageState.FREE] + pool.counts[PageState.CACHED] == pool.capacity
            assert pool.protected == 0
            assert not pool.loans.any()
