"""One simulated run: connects a workload, a core, a controller, a device and an engine.

Lives here: construction, arrivals, and the result. Does not contain rules of the simulation.
"""

from __future__ import annotations

import gc
from array import array
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import Direction
from hicache.models import ModelDescription
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver, Observer

from .audit import audit
from .content import prefix_tags
from .engine.accesses import Accesses
from .engine.costs import CostModel
from .engine.engine import Engine
from .engine.forward import Forward
from .engine.running import Platform
from .engine.sequence import RequestResult, Sequence, final_length
from .errors import StuckError, too_small
from .hardware.profile import HardwareProfile
from .machine import build
from .options import EngineOptions, WorldOptions
from .recorder import Recorder
from .workload import Job, Workload


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of one direction of the host link: bytes of finished copies, and busy time."""

    bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TimedResult:
    """The result of a run. requests: the requests that ended, by index; incomplete during the run.

    byte_checks: number of SHA-256 comparisons. access_checks: number of accesses that the hazard
    detector checked. evicted: (component, pages on device, pages on host).
    """

    requests: tuple[RequestResult, ...]
    makespan_ns: int
    d2h: LinkUse
    h2d: LinkUse
    core_events: int
    byte_checks: int
    access_checks: int
    digest: str
    evicted: tuple[tuple[str, int, int], ...] = ()


class World:
    """See the module. progress: called with (ended, all) when a request ends."""

    def __init__(
        self,
        workload: Workload,
        config: Config,
        model: ModelDescription,
        profile: HardwareProfile,
        *,
        engine: EngineOptions | None = None,
        options: WorldOptions | None = None,
        observers: abc.Sequence[Observer] = (),
        progress: Callable[[int, int], None] = lambda ended, jobs: None,
    ) -> None:
        engine, options = engine or EngineOptions(), options or WorldOptions()
        _check_sizes(workload, config)
        self._workload = workload
        self._progress = progress
        self._speed = options.speed
        costs = CostModel(model, profile, options.tp)
        groups = min(engine.layer_groups, costs.layers)
        self._machine = machine = build(config, model, profile, groups, options, scribble=False)
        self.clock = machine.clock
        self.core = Core(config)
        self.controller = TransferController(machine.device)
        self._recorder = Recorder(lambda: self.clock.now_ns)
        self.driver = Driver(self.core, self.controller, (self._recorder, *observers))
        accesses = Accesses(config, self.core.view.components)
        checked = machine.memory is not None
        forward = Forward(machine.sim, machine.device, self.controller, costs, accesses, checked)
        platform = Platform(self.clock, self.driver, self.controller, forward, costs)
        self.engine = Engine(workload, platform, engine, self._ended)
        machine.sim.listener = self.engine.wake
        if machine.memory is not None:
            machine.memory.whose = self._whose
        self._results: dict[int, RequestResult] = {}
        self._arrivals = (job for job in workload.jobs if job.after < 0)
        self._followers: dict[int, array[int]] = {}  # their places in the workload
        for place, job in enumerate(workload.jobs):
            if job.after >= 0:
                self._followers.setdefault(job.after, array("q")).append(place)

    def run(self) -> TimedResult:
        """Runs all requests. After an exception (also Ctrl-C), `result` returns the results so far.

        Raises StuckError when requests are left and nothing is scheduled.
        """
        collecting = gc.isenabled()
        gc.disable()  # reference counting is enough; a collection would scan the whole tree
        try:
            self._next_arrival()
            while self.clock.next_ns() >= 0:
                self.clock.step()
        finally:
            if collecting:
                gc.enable()
        if len(self._results) < len(self._workload.jobs):
            raise self._stuck()
        if self._machine.memory is not None:
            audit(self.core.view, self._machine.memory)
        return self.result()

    def result(self) -> TimedResult:
        """The results so far."""
        memory, hazards = self._machine.memory, self._machine.hazards
        requests = tuple(self._results[index] for index in sorted(self._results))
        evicted = self._recorder.evicted
        return TimedResult(
            requests=requests,
            makespan_ns=max((request.finish_ns for request in requests), default=0),
            d2h=self._link_use(Direction.DEVICE_TO_HOST),
            h2d=self._link_use(Direction.HOST_TO_DEVICE),
            core_events=self._recorder.events,
            byte_checks=memory.checked if memory is not None else 0,
            access_checks=hazards.checked if hazards is not None else 0,
            digest=self._recorder.digest(),
            evicted=tuple(
                (name, evicted.get((Tier.DEVICE, name), 0), evicted.get((Tier.HOST, name), 0))
                for name in self.core.view.config.components
            ),
        )

    def _link_use(self, way: Direction) -> LinkUse:
        link = self._machine.link
        return LinkUse(link.bytes_moved(way), link.busy_ns(way))

    def _next_arrival(self) -> None:
        job = next(self._arrivals, None)
        if job is not None:
            delay_ns = max(0, self._scaled(job.arrival_ns) - self.clock.now_ns)
            self.clock.after(delay_ns, lambda: self._arrive(job))

    def _arrive(self, job: Job) -> None:
        self.engine.arrive(job)
        self._next_arrival()

    def _ended(self, sequence: Sequence) -> None:
        index = sequence.job.index
        self._results[index] = sequence.result
        for place in self._followers.pop(index, ()):
            self._follow(self._workload.jobs[place])
        self._progress(len(self._results), len(self._workload.jobs))

    def _follow(self, job: Job) -> None:
        self.clock.after(self._scaled(job.arrival_ns), lambda: self.engine.arrive(job))

    def _scaled(self, time_ns: int) -> int:
        """A time of the trace in the time of the run."""
        return time_ns * self._speed.denominator // self._speed.numerator

    def _whose(self, tag: int) -> str:
        """Describes the prefix of a tag for a message. Slow."""
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
    """Raises CallerError when a request can never fit, before anything runs."""
    if workload.page_size != config.page_size:
        raise CallerError(
            f"page_size: expected the workload's {workload.page_size}, found {config.page_size}"
        )
    for job in workload.jobs:
        pages = -(-final_length(job) // config.page_size)
        if pages > config.device_pages[0]:
            raise too_small(job.index, config.components[0], pages, config.device_pages[0])
