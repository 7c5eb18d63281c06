"""Replays a recording with one stream wait left out and one stream held, to force a race.

Contains the replay of a recording on any device, the removal of one wait, and the choice of the
item to hold. Does not define the bytes (see checked_device), hold streams (see hicache/devices), or
detect hazards (see sim/device/hazards).

    on_simulator  leaves out a wait; reports the accesses that nothing orders then, and the item to
                  hold
    on_device     makes the same calls with real bytes, with that item held

Forward passes are answered as soon as they are issued, as by an engine that prepares its next batch
meanwhile, so only streams order them against copies. The recording determines every call, so wait
number n is the same wait on every device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hicache.core.actions import Load, Outcome, Prefill
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import FlightId
from hicache.devices.base import CopyJob, Device, Front, Holdable, Mark, Stream, Touch
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, LOAD, WRITE, ControllerOptions, TransferController
from hicache.runtime.recording import Follower
from hicache.runtime.recording_format import Recording
from sim.device.hazards import HazardDevice
from sim.engine.accesses import Access, Accesses
from sim.errors import HazardError, StuckError
from sim.hardware.profile import HardwareProfile
from sim.machine import build
from sim.options import WorldOptions

from .checked_device import CheckedDevice, Hold
from .holdings import Holdings
from .recording_on_sim import layer_bytes

STREAMS = (COMPUTE, WRITE, LOAD)
_POLL_S = 20e-6


class Wait(NamedTuple):
    """`stream` waits for `behind`, whose items `first` to `last` - 1 only this wait orders."""

    stream: str
    behind: str
    first: int
    last: int

    def hold(self, time_ns: int) -> Hold:
        """The hold that exposes the loss of this wait."""
        return Hold(self.behind, time_ns, self.first)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The simulator's prediction. waits: up to the failure. failure: "" if there is none."""

    waits: tuple[Wait, ...]
    failure: str


@dataclass(frozen=True, slots=True)
class ForcedResult:
    """The result on a device. wrong: reads with other bytes than the order of issue gives."""

    wrong: tuple[str, ...]
    compared: int
    held: int
    digest: str


def on_simulator(
    recording: Recording, model: ModelDescription, profile: HardwareProfile, drop: int = -1
) -> Prediction:
    """Replays on the simulated device without wait number `drop` (-1: with all waits)."""
    machine = build(recording.config, model, profile, model.layers, WorldOptions(checks="every"))
    assert machine.hazards is not None

    def turn() -> None:
        if machine.clock.next_ns() < 0:
            raise StuckError(f"{recording.path}: a transfer has no end, and nothing is in flight")
        machine.clock.step()

    without_wait = _WithoutWait(HazardDevice(machine.sim, machine.hazards), drop)
    try:
        _Playback(recording, model, without_wait, turn).run()
    except HazardError as error:
        return Prediction(tuple(without_wait.waits), str(error))
    return Prediction(tuple(without_wait.waits), "")


def on_device(
    recording: Recording,
    model: ModelDescription,
    device: Holdable,
    drop: int = -1,
    hold: Hold | None = None,
) -> ForcedResult:
    """Replays on a device without wait number `drop`, with a stream held."""
    checked = CheckedDevice(device, model, recording.config.page_size, hold)
    playback = _Playback(recording, model, _WithoutWait(checked, drop), lambda: time.sleep(_POLL_S))
    digest = playback.run()
    return ForcedResult(tuple(checked.wrong), checked.compared, checked.held, digest)


class _WithoutWait(Front[Device]):
    """Leaves out one wait, and records for each wait what it adds to the order of its stream.

    The order is kept as item numbers: the items of each stream that each stream, each mark and the
    host know to have ended.
    """

    def __init__(self, inner: Device, drop: int) -> None:
        super().__init__(inner)
        self._drop = drop
        self._names: dict[Stream, str] = {}
        self._issued: dict[Stream, int] = {}
        self._known: dict[Stream, dict[Stream, int]] = {}
        self._marks: dict[Mark, tuple[Stream, dict[Stream, int]]] = {}
        self._host: dict[Stream, int] = {}
        self.waits: list[Wait] = []

    def stream(self, name: str) -> Stream:
        stream = self.inner.stream(name)
        if stream not in self._names:
            self._names[stream], self._issued[stream], self._known[stream] = name, 0, {}
        return stream

    def record(self, stream: Stream) -> Mark:
        mark = self.inner.record(stream)
        self._marks[mark] = (stream, {**self._known[stream], stream: self._issued[stream]})
        return mark

    def wait(self, stream: Stream, mark: Mark) -> None:
        behind, reached = self._marks[mark]
        known = self._known[stream]
        _merge(known, self._host)
        first = min(known.get(behind, 0), reached[behind])
        self.waits.append(Wait(self._names[stream], self._names[behind], first, reached[behind]))
        if len(self.waits) - 1 != self._drop:
            _merge(known, reached)
            self.inner.wait(stream, mark)

    def query(self, mark: Mark) -> bool:
        reached = self.inner.query(mark)
        if reached:
            _merge(self._host, self._marks[mark][1])
        return reached

    def copy(self, stream: Stream, job: CopyJob) -> None:
        self._issued[stream] += 1
        self.inner.copy(stream, job)

    def touch(self, stream: Stream, touch: Touch) -> None:
        self._issued[stream] += 1
        self.inner.touch(stream, touch)


class _Playback:
    """Replays one recording on one device. turn: lets the device continue while it is awaited."""

    def __init__(
        self,
        recording: Recording,
        model: ModelDescription,
        device: Device,
        turn: Callable[[], None],
    ) -> None:
        if any(getattr(step.event, "ok", True) is False for step in recording.steps):
            raise CallerError(
                f"{recording.path}: expected a recording whose transfers all succeeded, found "
                "one that failed; record one without faults"
            )
        self._bytes = layer_bytes(model, recording.config.page_size)
        self._recording = recording
        self._device = device
        self._turn = turn
        limits = ControllerOptions(backup_batches=ControllerOptions().capacity)
        self._controller = TransferController(device, limits)
        self._follower = Follower(recording, self._controller)
        self._stream = device.stream(COMPUTE)
        self._loads: dict[FlightId, tuple[Mark, ...]] = {}
        self._replied: dict[FlightId, None] = {}
        self._waiting: list[Prefill] = []
        self._accesses = Accesses(recording.config, self._follower.driver.core.view.components)
        self._holdings = Holdings(self._accesses)

    def run(self) -> str:
        """Returns the digest of the decisions. Raises DivergedError if they differ."""
        for step in self._recording.steps:
            event = step.event
            if event is None:
                self._start()
                continue
            if isinstance(event, LoadDone | BackupDone):
                self._until_replied(event.flight)
                self._loads.pop(event.flight, None)
            for access in self._holdings.decoded(event):
                self._access(access, (0, self._device.layers), "decode")
            for outcome in self._follower.feed(step):
                self._note(outcome)
        for mark in [self._device.record(self._device.stream(name)) for name in STREAMS]:
            while not self._device.query(mark):
                self._turn()
        return self._follower.end()

    def _note(self, outcome: Outcome) -> None:
        if isinstance(outcome, Load):
            self._loads[outcome.flight] = ()
        elif isinstance(outcome, Prefill):
            self._waiting.append(outcome)
        self._holdings.note(outcome)

    def _start(self) -> None:
        """Starts queued transfers and passes.

        Keeps the marks of loads itself, because the time at which the controller drops them varies.
        """
        self._controller.start()
        for flight, marks in self._loads.items():
            self._loads[flight] = marks or self._controller.load_marks(flight)
        prefills, self._waiting = self._waiting, []
        loads = {
            marks: None
            for prefill in prefills
            for flight in prefill.after
            if (marks := self._loads.get(flight, ()))
        }
        for layer in range(self._device.layers):
            for marks in loads:
                self._device.wait(self._stream, marks[layer])
            for prefill in prefills:
                why = f"prefill of request {prefill.request}, flight {prefill.flight}"
                for access in (*self._accesses.first(prefill), *self._accesses.last(prefill)):
                    self._access(access, (layer, layer + 1), why)

    def _until_replied(self, flight: FlightId) -> None:
        while flight not in self._replied:
            for reply in self._controller.poll():
                self._replied[reply.flight] = None
            if flight not in self._replied:
                self._turn()
        del self._replied[flight]

    def _access(self, access: Access, layers: tuple[int, int], why: str) -> None:
        """Issues an access, unless the component has no pool in these layers."""
        if any(self._bytes[access.component][layers[0] : layers[1]]):
            self._device.touch(self._stream, access.touch(layers, why))


def _merge(known: dict[Stream, int], other: dict[Stream, int]) -> None:
    for stream, items in other.items():
        known[stream] = max(known.get(stream, 0), items)
