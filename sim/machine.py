"""Builds the simulated machine of a run: clock, link and device; with checks on, also the memory
and the hazard detector.

Lives here: building a device from a profile, a model and the pools of a core. Does not know about
requests or about the users of the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from hicache.core.config import Config
from hicache.devices.base import Device
from hicache.models import ModelDescription

from .clock import Clock
from .device.hazards import HazardDevice, Hazards, places_of
from .device.link import Link
from .device.memory import Memory
from .device.simulated import SimDevice, SimDeviceOptions
from .hardware.profile import HardwareProfile
from .options import WorldOptions

_WITH_ESTIMATES = "pure-roofline"


@dataclass(frozen=True, slots=True)
class Machine:
    """device: `sim` itself, or with checks on a HazardDevice in front of it. Report accesses to
    `device`. links: of one rank of each stage of the pipeline.
    """

    clock: Clock
    links: tuple[Link, ...]
    sim: SimDevice
    device: Device
    memory: Memory | None
    hazards: Hazards | None


def build(
    config: Config,
    model: ModelDescription,
    profile: HardwareProfile,
    groups: int,
    options: WorldOptions,
    scribble: bool = True,
    clock: Clock | None = None,
) -> Machine:
    """Builds a machine. groups: number of layer groups, into which a load is divided. scribble: see
    SimDeviceOptions. With options.checks "off", memory and hazards are None. clock: None for one of
    its own.
    """
    clock = clock or Clock()
    estimated = options.times == _WITH_ESTIMATES
    shared = (
        profile.reached_shared_bytes_per_s if estimated else profile.measured_shared_bytes_per_s
    )
    # A page is on the ranks of one group, and the links of other groups carry other pages.
    together = options.parallelism.attention_dp
    stages = options.parallelism.pp
    links = tuple(
        Link(
            clock,
            together * profile.reached_link_bytes_per_s,
            together * shared,
            profile.copy_latency_ns,
            profile.curves,
        )
        for _ in range(stages)
    )
    ranks, dcp, on_host = (
        options.parallelism.attention_tp,
        options.parallelism.dcp,
        options.parallelism.among_on_host,
    )
    sizes, to_host = (
        {
            component: group_bytes(model, component, config.page_size, groups, ranks, among)
            for component in config.components
        }
        for among in (dcp, on_host)
    )
    device_options = SimDeviceOptions(
        sizes, options.seed, options.lag_ns, faults=options.faults, scribble=scribble
    )
    if on_host != dcp:
        device_options = replace(device_options, to_host=to_host)
    if options.checks == "off":
        sim = SimDevice(clock, links, device_options)
        return Machine(clock, links, sim, sim, None, None)
    places = places_of(config)
    memory, hazards = Memory(places, groups), Hazards(places, groups, 4 * stages)
    sim = SimDevice(clock, links, device_options, memory)
    return Machine(clock, links, sim, HazardDevice(sim, hazards), memory, hazards)


def layer_groups(wanted: int, layers: int, stages: int) -> int:
    """The number of layer groups: as many as wanted, but no more than layers, and the same number
    in each stage of a pipeline."""
    return max(1, min(wanted, layers) // stages) * stages


def group_bytes(
    model: ModelDescription,
    component: str,
    page_size: int,
    groups: int,
    tp: int,
    among: int = 1,
) -> tuple[int, ...]:
    """Returns the bytes of one page of a component on one rank, for each layer group. among:
    as for a pool."""
    bounds = [model.layers * group // groups for group in range(groups + 1)]
    return tuple(
        sum(
            replace(pool, layers=tuple(n for n in pool.layers if first <= n < last)).page_bytes(
                page_size, tp, among
            )
            for pool in model.pools_of(component)
        )
        for first, last in pairwise(bounds)
    )
