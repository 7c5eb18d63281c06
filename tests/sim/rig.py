"""Small worlds for tests: workloads whose prefixes overlap, and a model that is quick to run."""

from typing import Any

from hicache import models
from sim import hardware
from sim.options import EngineOptions, WorldOptions
from sim.replica import TimedResult, WorldStorage
from sim.world import World
from tests.configs import configured, message_of
from tests.sim.workloads import Prompts, hybrid

MODEL = models.get("llama-3.1-8b")
PROFILE = hardware.get("h100")
POLICIES = ("write_through", "write_through_selective", "write_back")
SMALL = EngineOptions(token_budget=16, max_running=4, growth_tokens=6, layer_groups=3)
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
    model = (
        hybrid(components, message_of(config, "swa_window"), MODEL)
        if len(components) > 1
        else MODEL
    )
    return World(workload, config, model, profile, engine=engine, options=options, storage=storage)


def run(
    workload: Prompts,
    device: int | tuple[int, ...] = 24,
    host: int | tuple[int, ...] = 40,
    **rest: Any,
) -> TimedResult:
    return make(workload, device, host, **rest).run()
