"""Small worlds for tests: workloads whose prefixes overlap, and a model that is quick to run."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from hicache import models, registry
from sim.hardware import profile as hardware
from sim.options import EngineOptions, WorldOptions
from sim.replica import TimedResult, WorldStorage
from sim.world import World
from tests.configs import configured, said
from tests.sim.workloads import PAGE, Prompts, hybrid

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


def make(
    workload: Prompts,
    device: int | tuple[int, ...] = 24,
    host: int | tuple[int, ...] = 40,
    *,
    engine: EngineOptions | None = None,
    options: WorldOptions | None = None,
    profile: hardware.HardwareProfile = PROFILE,
    components: tuple[str, ...] = ("full",),
    storage: WorldStorage | None = None,
    **settings: Any,
) -> World:
    """device, host: pages per component, or one number for the only one."""
    config = configured(
        workload.page_size,
        (device,) if isinstance(device, int) else device,
        (host,) if isinstance(host, int) else host,
        components,
        storage=storage is not None,
        **settings,
    )
    options = options or WorldOptions(checks="every")
    model = hybrid(components, said(config, "swa_window"), MODEL) if len(components) > 1 else MODEL
    return World(workload, config, model, profile, engine=engine, options=options, storage=storage)


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
