"""One simulated run: a workload, a core, a controller, a device and an engine, wired and measured.

Lives here: construction, arrivals, and the result. Must not live here: any rule of the simulation.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from itertools import pairwise

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import Device, Direction
from hicache.models import ModelDescription
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver, Observer

from .clock import Clock
from .content import prefix_tags
from .costs import CostModel
from .device import DeviceOptions, FaultRule, SimDevice, no_faults
from .engine import Engine, EngineOptions, too_small
from .errors import StuckError
from .forward import Forward
from .hardware import HardwareProfile
from .hazards import HazardDevice, Hazards
from .link import Link
from .memory import Memory
from .recorder import Recorder
from .sequence import RequestResult, Sequence, final_length
from .workload import Job, Workload

CHECK_LEVELS = ("off", "sampled", "every")


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """checks: off keeps no bytes and detects no hazards; it changes no time and no decision.

    seed    root of every draw. tp: ranks that share the model.
    lag_ns  the host sees the end of a transfer up to this much late.
    faults  which copies fail, by number in order of issue and direction.
    """

    checks: str = "off"
    seed: int = 0
    tp: int = 1
    lag_ns: int = 5_000
    faults: FaultRule = no_faults

    def __post_init__(self) -> None:
        if self.checks not in CHECK_LEVELS:
            raise CallerError(
                f"checks: expected one of {', '.join(CHECK_LEVELS)}, found {self.checks!r}"
            )


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One direction of the host link: bytes of finished copies, and how long it was in use."""

    bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TimedResult:
    """What is known of a run. requests: those that ended, by index; partial while it runs.

    byte_checks: SHA-256 comparisons. access_checks: accesses the hazard detector ordered.
    """

    requests: tuple[RequestResult, ...]
    makespan_ns: int
    d2h: LinkUse
    h2d: LinkUse
    evicted_device_pages: int
    evicted_host_pages: int
    core_events: int
    byte_checks: int
    access_checks: int
    digest: str


class World:
    """See the module. progress: called with (ended, all) whenever a request ended."""

    def __init__(
        self,
        workload: Workload,
        config: Config,
        model: ModelDescription,
        profile: HardwareProfile,
        engine: EngineOptions | None = None,
        options: WorldOptions | None = None,
        observers: Several[Observer] = (),
        progress: Callable[[int, int], None] = lambda ended, jobs: None,
    ) -> None:
        engine, options = engine or EngineOptions(), options or WorldOptions()
        _check_sizes(workload, config)
        self._workload = workload
        self._progress = progress
        self.clock = Clock()
        self._recorder = Recorder(lambda: self.clock.now_ns)
        self.core = Core(config)
        self._link = Link(
            self.clock,
            profile.reached_link_bytes_per_s,
            profile.reached_shared_bytes_per_s,
            profile.copy_latency_ns,
        )
        costs = CostModel(model, profile, options.tp)
        groups = min(engine.layer_groups, costs.layers)
        capacities = {
            (tier, component): sizes[index]
            for index, component in enumerate(config.components)
            for tier, sizes in ((Tier.DEVICE, config.device_pages), (Tier.HOST, config.host_pages))
        }
        checked = options.checks != "off"
        self._memory = Memory(capacities, groups) if checked else None
        self._hazards = Hazards(capacities, groups) if checked else None
        sizes = {
            component: _group_bytes(model, component, config.page_size, groups, options.tp)
            for component in config.components
        }
        self._sim = SimDevice(
            self.clock,
            self._link,
            DeviceOptions(sizes, options.seed, options.lag_ns, faults=options.faults),
            self._memory,
        )
        device: Device = self._sim
        if self._hazards is not None:
            device = HazardDevice(self._sim, self._hazards)
        self.controller = TransferController(device)
        self.driver = Driver(self.core, self.controller, (self._recorder, *observers))
        forward = Forward(
            self._sim,
            device,
            self.controller,
            costs,
            config.page_size,
            config.components[0],
            checked,
        )
        self.engine = Engine(
            workload,
            self.clock,
            self.driver,
            self.controller,
            forward,
            costs,
            engine,
            self._ended,
            checked,
        )
        self._sim.listener = self.engine.wake
        if self._memory is not None:
            self._memory.whose = self._whose
        self._results: dict[int, RequestResult] = {}
        self._followers: dict[int, list[Job]] = {}
        self._arrivals = iter([job for job in workload.jobs if job.after < 0])
        for job in workload.jobs:
            if job.after >= 0:
                self._followers.setdefault(job.after, []).append(job)

    def run(self) -> TimedResult:
        """To the end. After an exception (Ctrl-C, too) `result` tells what is known so far."""
        collecting = gc.isenabled()
        gc.disable()  # reference counting frees what a run drops; a sweep of the tree is slow
        try:
            self._next_arrival()
            while self.clock.next_ns() >= 0:
                self.clock.step()
        finally:
            if collecting:
                gc.enable()
        if len(self._results) < len(self._workload.jobs):
            raise self._stuck()
        return self.result()

    def result(self) -> TimedResult:
        """What is known now."""
        down, up = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE
        requests = tuple(self._results[index] for index in sorted(self._results))
        return TimedResult(
            requests,
            max((request.finish_ns for request in requests), default=0),
            LinkUse(self._link.bytes_moved(down), self._link.busy_ns(down)),
            LinkUse(self._link.bytes_moved(up), self._link.busy_ns(up)),
            self._recorder.evicted[Tier.DEVICE],
            self._recorder.evicted[Tier.HOST],
            self._recorder.events,
            self._memory.checked if self._memory is not None else 0,
            self._hazards.checked if self._hazards is not None else 0,
            self._recorder.digest(),
        )

    def _next_arrival(self) -> None:
        job = next(self._arrivals, None)
        if job is not None:
            delay_ns = max(0, job.arrival_ns - self.clock.now_ns)
            self.clock.after(delay_ns, lambda: self._arrive(job))

    def _arrive(self, job: Job) -> None:
        self.engine.arrive(job)
        self._next_arrival()

    def _ended(self, sequence: Sequence) -> None:
        index = sequence.job.index
        self._results[index] = sequence.result
        for job in self._followers.pop(index, ()):
            self._follow(job)
        self._progress(len(self._results), len(self._workload.jobs))

    def _follow(self, job: Job) -> None:
        self.clock.after(job.arrival_ns, lambda: self.engine.arrive(job))

    def _whose(self, tag: int) -> str:
        """In words, the prefix that a tag stands for. Slow: only for a message."""
        for job in self._workload.jobs:
            tags = prefix_tags(self._workload.key(job, final_length(job)))
            for page in (tags == tag).nonzero()[0]:
                return f"page {int(page)} of request {job.index}"
        return f"content of nobody (tag {tag:#018x})"

    def _stuck(self) -> StuckError:
        left = list(self.engine.sequences)
        return StuckError(
            f"{len(left)} requests are left ({left[:8]}), {self.controller.unanswered} transfers "
            f"unanswered, and nothing is scheduled; last refusal: {self.engine.last_refusal}"
        )


def _check_sizes(workload: Workload, config: Config) -> None:
    """Raises CallerError before anything runs where a request can never fit."""
    if workload.page_size != config.page_size:
        raise CallerError(
            f"page_size: expected the workload's {workload.page_size}, found {config.page_size}"
        )
    for job in workload.jobs:
        pages = -(-final_length(job) // config.page_size)
        if pages > config.device_pages[0]:
            raise too_small(job.index, pages, config.device_pages[0])


def _group_bytes(
    model: ModelDescription, component: str, page_size: int, groups: int, tp: int
) -> tuple[int, ...]:
    """Bytes of one page of a component in each group of layers, on one rank."""
    bounds = [model.layers * group // groups for group in range(groups + 1)]
    return tuple(
        sum(
            page_size
            * len(pool.parts)
            * pool.row_bytes(tp)
            * sum(first <= layer < last for layer in pool.layers)
            for pool in model.pools_of(component)
        )
        for first, last in pairwise(bounds)
    )
