"""The two runs of a twin: a workload on a real device, and its recording on the simulated one.

`DeviceRun` serves a workload with the engine: real bytes, real time. A stand-in for the model
writes pages with known content and checks all that it reads. Requests arrive as fast as the device
serves them, and the device determines the order in which transfers end.

`OnSimulator` feeds the recorded events to a new core while its transfers run on the simulated
device. Everything is issued at its recorded time, or later if the simulator has not finished what
the next event reports. A pass takes no time there.
"""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import TransferId
from hicache.devices.base import Access, Device, DeviceEvent, Front, Stream
from hicache.memory.layouts import Bytes
from hicache.memory.pools import contents_of
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, ControllerOptions, TransferController
from hicache.runtime.driver import Driver
from hicache.runtime.recording import Follower, Recorder, Recording
from sim.content import Words
from sim.device.hazards import HazardDevice, Hazards, places_of
from sim.engine.engine import Engine
from sim.engine.forward import Accesses, Forward
from sim.engine.running import Platform
from sim.engine.sequence import RequestResult
from sim.engine.sequence import Sequence as Request
from sim.errors import StuckError, WrongBytesError
from sim.hardware import HardwareProfile
from sim.options import EngineOptions, WorldOptions
from sim.replica import build
from sim.times import base as times
from sim.workload import Job, Workload

from .bench import POLL_S, Stopwatch, TimedDevice, Timing

_STUCK_POLLS = 2000
# Every start issues all queued transfers as one batch: with a limit on batches in flight, batches
# would not depend on their start times alone.
_AS_STARTED = ControllerOptions(backup_batches=ControllerOptions().capacity)


@dataclass(frozen=True, slots=True)
class Played:
    """What a run on a device did. digest: of the decisions. timings: of each copy. byte_checks:
    reads compared byte by byte. access_checks: accesses whose order the hazard detector checked."""

    digest: str
    timings: list[Timing]
    byte_checks: int
    access_checks: int
    requests: tuple[RequestResult, ...]


class _WallTimer:
    """Runs actions at times of the wall clock; `turn` runs them in the caller's thread."""

    def __init__(self) -> None:
        self._started_ns = time.perf_counter_ns()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    @property
    def now_ns(self) -> int:
        return time.perf_counter_ns() - self._started_ns

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now_ns + delay_ns, self._number, action))

    def next_ns(self) -> int:
        return self._queue[0][0] if self._queue else -1

    def turn(self) -> None:
        """Runs the actions that are due."""
        while self._queue and self._queue[0][0] <= self.now_ns:
            heapq.heappop(self._queue)[2]()


class _StandIn:
    """A model that computes nothing: it writes pages with known content, and compares what it
    reads, in any thread. checked: reads compared. wrong: those with other content. passes: those
    that run, and what to do when they end."""

    def __init__(self, device: Device, model: ModelDescription, page_size: int) -> None:
        self._device = device
        self._plans = contents_of(model, page_size)
        self.passes: list[tuple[DeviceEvent, Callable[[], None]]] = []
        self.wrong: list[str] = []
        self.checked = 0

    def compute(self, stream: Stream, duration_ns: int) -> None:
        """Does nothing."""

    def publish(self, stream: Stream, access: Access, tags: Words) -> None:
        self._device.write_pattern(stream, access.area, tags)

    def verify(
        self, stream: Stream, access: Access, tags: Words, unless: tuple[DeviceEvent, ...] = ()
    ) -> None:
        """No load fails here, so `unless` is not heeded."""

        def compare(blocks: tuple[Bytes, ...]) -> None:
            what, layers = f"{access.why}: pages {access.pages.tolist()[:8]}", access.layers
            plans = self._plans[access.component]
            for number, (plan, block) in enumerate(zip(plans, blocks, strict=True)):
                if not np.array_equal(block, plan.stamped(tags, number, plan.layers_in(*layers))):
                    self.wrong.append(f"{what} of {plan.label}, layers from {layers[0]}")
            self.checked += 1

        self._device.read(stream, access.area, compare)

    def sync(self, device_event: DeviceEvent, action: Callable[[], None]) -> None:
        self.passes.append((device_event, action))

    def turn(self, device: Device) -> bool:
        """Runs the actions of the passes that have ended; returns whether there were any."""
        ended = [entry for entry in self.passes if device.query(entry[0])]
        self.passes = [entry for entry in self.passes if entry not in ended]
        for _, action in ended:
            action()
        return bool(ended)


class _Untouched(Front[Device]):
    """A device that leaves accesses out, which the hazard detector sees before it."""

    def access(self, stream: Stream, access: Access) -> None:
        """`_StandIn.publish` or `_StandIn.verify` follows for the same pages."""


class _Controller(TransferController):
    """Tells the recorder when transfers were started."""

    def __init__(self, device: Device, recorder: Recorder) -> None:
        super().__init__(device, _AS_STARTED)
        self._recorder = recorder

    def start(self) -> None:
        self._recorder.started()
        super().start()


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """What is served, and by what. profile: of the accelerator that the engine plans with."""

    workload: Workload
    config: Config
    model: ModelDescription
    profile: HardwareProfile
    engine: EngineOptions


class DeviceRun:
    """Runs one workload on one device, which the caller closes. A request arrives at once, or when
    the one that it follows has ended. record: called with each line of the recording."""

    def __init__(
        self, service: Service, device: TimedDevice, record: Callable[[str], object]
    ) -> None:
        config, model = service.config, service.model
        self._hazards = Hazards(places_of(config), device.layers)
        self._checker = Stopwatch(device, model, config.page_size)
        self._device = guard = HazardDevice(_Untouched(self._checker), self._hazards)
        self._stand_in = stand_in = _StandIn(device, model, config.page_size)
        self._timer = _WallTimer()
        self._recorder = Recorder(config, record, lambda: self._timer.now_ns)
        self._controller = _Controller(guard, self._recorder)
        costs = times.make(times.DEFAULT, model, service.profile)
        core = Core(config)
        accesses = Accesses(config, core.view.components)
        forward = Forward(stand_in, guard, self._controller, costs, accesses, checked=True)
        driver = Driver(core, self._controller, (self._recorder,))
        platform = Platform(self._timer, driver, self._controller, forward, costs)
        self._engine = Engine(service.workload, platform, service.engine, self._ended)
        self._jobs = service.workload.jobs
        self._results: dict[int, RequestResult] = {}
        self._followers: dict[int, list[Job]] = {}

    def run(self, progress: Callable[[int], None] = lambda done: None) -> Played:
        """Serves all requests. Raises WrongBytesError if a read found wrong content."""
        for job in self._jobs:
            if job.after < 0:
                self._engine.arrive(job)
            else:
                self._followers.setdefault(job.after, []).append(job)
        idle, seen = 0, -1
        while len(self._results) < len(self._jobs) or self._controller.unanswered:
            if not self._stand_in.turn(self._device):
                self._engine.wake()
                time.sleep(POLL_S)
            self._timer.turn()
            self._check()
            events = self._recorder.decisions.events
            waits = self._controller.unanswered or self._stand_in.passes or events != seen
            idle, seen = (0 if waits else idle + 1), events
            if idle > _STUCK_POLLS:
                raise StuckError(
                    f"{len(self._engine.sequences)} requests are left and nothing is in flight; "
                    f"last refusal: {self._engine.last_refusal}"
                )
            progress(len(self._results))
        end = self._device.record(self._device.stream(COMPUTE))
        while not self._device.query(end):
            time.sleep(POLL_S)
        self._check()
        return Played(
            self._recorder.close(),
            self._checker.settle(),
            self._stand_in.checked,
            self._hazards.checked,
            tuple(self._results[index] for index in sorted(self._results)),
        )

    def _check(self) -> None:
        if self._stand_in.wrong:
            raise WrongBytesError(self._stand_in.wrong[0])

    def _ended(self, request: Request) -> None:
        self._results[request.job.index] = request.result
        for job in self._followers.pop(request.job.index, ()):
            self._engine.arrive(job)


class OnSimulator:
    """One recording on the simulated device: its events go to a new core, whose transfers the
    device runs. seed: of the simulator's draws, which change no decision."""

    def __init__(
        self, recording: Recording, model: ModelDescription, profile: HardwareProfile, seed: int = 0
    ) -> None:
        config = recording.config
        options = WorldOptions(checks="off", seed=seed)
        machine = build(config, model, profile, model.layers, options)
        self._clock = machine.clock
        self._checker = Stopwatch(machine.sim, model, config.page_size)
        self._recording = recording
        self._controller = TransferController(self._checker, _AS_STARTED)
        self._follower = Follower(recording, self._controller)
        self._replied: set[TransferId] = set()

    def run(self) -> tuple[str, list[Timing]]:
        """The digest of the decisions, and the time of each copy. Raises DivergedError at the first
        event whose decisions differ from the recording."""
        for step in self._recording.steps:
            self._advance(step.time_ns)
            if step.event is None:
                self._controller.start()
                continue
            if isinstance(step.event, LoadDone | BackupDone):
                self._until_replied(step.event.transfer)
            self._follower.feed(step)
        return self._follower.end(), self._checker.settle(self._clock.step)

    def _until_replied(self, transfer: TransferId) -> None:
        while transfer not in self._replied:
            self._replied.update(reply.transfer for reply in self._controller.poll())
            if transfer not in self._replied:
                self._clock.step()
        self._replied.remove(transfer)

    def _advance(self, time_ns: int) -> None:
        clock = self._clock
        if time_ns > clock.now_ns:
            clock.after(time_ns - clock.now_ns, lambda: None)
        while 0 <= clock.next_ns() <= time_ns:
            clock.step()
