"""One simulated run: connects a workload, a core, a controller, a device and an engine.

Lives here: construction, arrivals, and the result. Does not contain rules of the simulation.
"""

from __future__ import annotations

import gc
from array import array
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.devices.base import Direction
from hicache.models import ModelDescription
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver, Executor, Observer
from hicache.runtime.tiered import TieredExecutor

from .audit import audit
from .content import prefix_tags
from .engine.accesses import Accesses
from .engine.costs import CostModel
from .engine.engine import Engine
from .engine.forward import Forward
from .engine.prefetching import PrefetchLimit
from .engine.running import Platform
from .engine.sequence import RequestResult, Sequence, final_length
from .errors import StuckError, too_small
from .hardware.profile import HardwareProfile
from .machine import build
from .options import EngineOptions, WorldOptions
from .recorder import Recorder
from .rounds import RoundOptions, Rounds
from .sender import Sender, SenderOptions
from .storage.contents import Contents
from .storage.options import StoreOptions
from .storage.page_bytes import PageBytes
from .storage.pipe import Pipe
from .storage.timed import TimedStore
from .workload import Job, Workload


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of one direction of the host link: bytes of finished copies, and busy time."""

    bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class WorldStorage:
    """The storage of a run. contents: what it has. value_bytes: of one value, by component in the
    order of the configuration. limit: how long a request may wait for its prefetch; None if none
    waits."""

    contents: Contents
    options: StoreOptions
    value_bytes: Mapping[str, int]
    limit: PrefetchLimit | None


@dataclass(frozen=True, slots=True)
class TimedResult:
    """The result of a run. requests: the requests that ended, by index; incomplete during the run.

    byte_checks: number of SHA-256 comparisons. access_checks: number of accesses that the hazard
    detector checked. evicted: (component, pages on device, pages on host). reads, writes: use of
    storage; None without it.
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
    reads: LinkUse | None = None
    writes: LinkUse | None = None


class World:
    """See the module. progress: called with (ended, all) when a request ends. sender: how requests
    are sent, if not when they arrive; `sent` is called with each just before it is."""

    def __init__(
        self,
        workload: Workload,
        config: Config,
        model: ModelDescription,
        profile: HardwareProfile,
        *,
        engine: EngineOptions | None = None,
        options: WorldOptions | None = None,
        storage: WorldStorage | None = None,
        rounds: RoundOptions | None = None,
        sender: SenderOptions | None = None,
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
        self.store = self._store_of(storage)
        executor: Executor = self.controller
        if self.store is not None:
            executor = TieredExecutor(self.controller, self.store)
        self.driver = Driver(self.core, executor, (self._recorder, *observers))
        accesses = Accesses(config, self.core.view.components)
        checked = machine.memory is not None
        forward = Forward(machine.sim, machine.device, self.controller, costs, accesses, checked)
        limit = storage.limit if storage is not None else None
        platform = Platform(
            self.clock, self.driver, self.controller, forward, costs, self.store, limit
        )
        self.engine = Engine(workload, platform, engine, self._ended)
        if self.store is not None:
            self.store.listener = self.engine.stored
        machine.sim.listener = self.engine.wake
        if machine.memory is not None:
            machine.memory.whose = self._whose
        self._rounds = self._rounds_of(rounds)
        self.sent: Callable[[Job], None] = lambda job: None
        self._sender = self._sender_of(sender)
        self._serve = self._sender.ready if self._sender else self.engine.arrive
        self._results: dict[int, RequestResult] = {}
        self._arrivals = (job for job in workload.jobs if job.after < 0)
        self._followers: dict[int, array[int]] = {}  # their places in the workload
        for place, job in enumerate(workload.jobs):
            if job.after >= 0:
                self._followers.setdefault(job.after, array("q")).append(place)

    def _store_of(self, storage: WorldStorage | None) -> TimedStore | None:
        if storage is None:
            return None
        page_bytes = PageBytes(self._machine.memory)
        return TimedStore(
            self.clock, storage.options, storage.contents, storage.value_bytes, page_bytes
        )

    def _rounds_of(self, options: RoundOptions | None) -> Rounds | None:
        if options is None:
            return None
        jobs, view = self._workload.jobs, self.core.view
        return Rounds(options, jobs, self.clock, view, self.driver.feed, self._follow)

    def _sender_of(self, options: SenderOptions | None) -> Sender | None:
        if options is None:
            return None
        return Sender(options, self._workload.jobs, self.clock, self._send, self._scaled)

    def _send(self, job: Job) -> None:
        self.sent(job)
        self.engine.arrive(job)

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
            reads=_pipe_use(self.store.reads) if self.store else None,
            writes=_pipe_use(self.store.writes) if self.store else None,
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
        self._serve(job)
        self._next_arrival()

    def _ended(self, sequence: Sequence) -> None:
        index = sequence.job.index
        self._results[index] = sequence.result
        if self._sender is not None:
            self._sender.ended(sequence.job)
        followers = [self._workload.jobs[place] for place in self._followers.pop(index, ())]
        if self._rounds is not None:
            self._rounds.ended(sequence.job, followers)
        else:
            for job in followers:
                self._follow(job)
        self._progress(len(self._results), len(self._workload.jobs))

    def _follow(self, job: Job) -> None:
        self.clock.after(self._scaled(job.arrival_ns), lambda: self._serve(job))

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

    def _unanswered(self) -> int:
        return self.controller.unanswered + (self.store.unanswered if self.store else 0)

    def _stuck(self) -> StuckError:
        left = list(self.engine.sequences)
        return StuckError(
            f"{len(left)} requests are left ({left[:8]}), {self._unanswered()} transfers "
            f"unanswered, and nothing is scheduled; last refusal: {self.engine.last_refusal}"
        )


def _pipe_use(pipe: Pipe) -> LinkUse:
    return LinkUse(pipe.bytes, pipe.busy_ns)


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
