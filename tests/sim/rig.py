"""Small worlds for tests, on a model that is quick to run; and cases: all that determines a run."""

from dataclasses import dataclass, field
from typing import Any

from hicache import models
from hicache.core.config import Config
from hicache.core.types import PageState, Tier
from hicache.models import ModelDescription
from sim import hardware
from sim.hardware import HardwareProfile
from sim.options import EngineOptions, WorldOptions
from sim.replica import TimedResult, WorldStorage
from sim.workload import Workload
from sim.world import World
from tests.sim.workloads import Prompts, hybrid
from tests.tiny import configured, message_of

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


@dataclass(frozen=True)
class Case:
    """Everything that determines a run."""

    workload: Workload
    config: Config
    model: ModelDescription
    profile: HardwareProfile
    engine: EngineOptions = field(default_factory=EngineOptions)
    options: WorldOptions = field(
        default_factory=lambda: WorldOptions(checks="every", times="pure-roofline")
    )


def world_of(case: Case, **more: Any) -> World:
    """The simulator's world of a case. more: observers, or what is told of its progress."""
    return World(
        case.workload,
        case.config,
        case.model,
        case.profile,
        engine=case.engine,
        options=case.options,
        **more,
    )


def simulated(case: Case) -> tuple[TimedResult, World]:
    world = world_of(case)
    return world.run(), world


def idle(world: World) -> None:
    """Nothing admitted, in flight, locked or lent; every page of every pool is free or cached."""
    view = world.core.view
    assert not view.requests
    assert not view.transfers
    assert not world.engine.sequences
    assert world.controller.unanswered == 0
    for tier in (Tier.DEVICE, Tier.HOST):
        for index in range(len(view.components)):
            pool = view.pool(tier, index)
            assert pool.counts[PageState.FREE] + pool.counts[PageState.CACHED] == pool.capacity
            assert pool.protected == 0
            assert not pool.loans.any()
