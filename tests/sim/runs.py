"""A case, which is all that determines a run, and the run of it. Cases are drawn in `cases`."""

from dataclasses import dataclass, field
from typing import Any

from hicache.core.config import Config
from hicache.core.types import PageState, Tier
from hicache.models import ModelDescription
from sim.hardware import HardwareProfile
from sim.options import EngineOptions, WorldOptions
from sim.replica import TimedResult
from sim.workload import Workload
from sim.world import World


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
