"""Replays a recording on the simulated device: in the recorded order, with simulated times.

Feeds recorded events to a new core while its transfers run on the simulator. Everything is issued
at its recorded time, or later if the simulator has not finished what the next event reports. Bytes
and hazards are checked all the time. Does not use the predicted times; see twin_report.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.actions import Prefill
from hicache.core.events import BackupDone, LoadDone, PrefillDone
from hicache.core.types import FlightId
from hicache.devices.base import Mark
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, ControllerOptions, TransferController
from hicache.runtime.recording import Follower
from hicache.runtime.recording_format import Recording
from sim.device.hazards import HazardDevice
from sim.engine.accesses import Access, Accesses
from sim.errors import StuckError
from sim.hardware.profile import HardwareProfile
from sim.machine import build, group_bytes
from sim.options import WorldOptions

from .holdings import Holdings
from .stopwatch import Stopwatch, Timing


@dataclass(frozen=True, slots=True)
class SimulatedRecording:
    """digest: of the decisions. byte_checks: comparisons. access_checks: ordered accesses."""

    digest: str
    timings: list[Timing]
    byte_checks: int
    access_checks: int


def layer_bytes(model: ModelDescription, page_size: int, tp: int = 1) -> dict[str, tuple[int, ...]]:
    """Bytes of one page, for each component and each layer of the model."""
    return {
        component: group_bytes(model, component, page_size, model.layers, tp)
        for component in model.components
    }


class OnSimulator:
    """Replays one recording. seed: of the simulator's draws, which change no decision."""

    def __init__(
        self, recording: Recording, model: ModelDescription, profile: HardwareProfile, seed: int = 0
    ) -> None:
        config = recording.config
        self._recording = recording
        options = WorldOptions(checks="every", seed=seed)
        self._machine = machine = build(config, model, profile, model.layers, options)
        assert machine.memory is not None
        assert machine.hazards is not None
        self._memory, self._hazards = machine.memory, machine.hazards
        self._clock = machine.clock
        self._watch = Stopwatch(machine.sim, layer_bytes(model, config.page_size))
        self._device = HazardDevice(self._watch, machine.hazards)
        # as on the device: every start issues all queued transfers as one batch
        limits = ControllerOptions(backup_batches=ControllerOptions().capacity)
        self._controller = TransferController(self._device, limits)
        self._follower = Follower(recording, self._controller)
        self._stream = self._device.stream(COMPUTE)
        self._replied: dict[FlightId, None] = {}
        self._passes: dict[FlightId, Mark] = {}
        self._waiting: list[Prefill] = []
        self._accesses = Accesses(config, self._follower.driver.core.view.components)
        self._holdings = Holdings(self._accesses)

    def run(self) -> SimulatedRecording:
        """Raises DivergedError at the first event whose decisions differ from the recording."""
        for step in self._recording.steps:
            self._advance(step.time_ns)
            event = step.event
            if event is None:
                self._controller.start()
                self._launch()
                continue
            if isinstance(event, LoadDone | BackupDone):
                self._until_replied(event.flight)
            elif isinstance(event, PrefillDone) and event.flight in self._passes:
                self._until_reached(self._passes.pop(event.flight))
            else:
                # all accesses at once, before the core commits the tokens
                for access in self._holdings.decoded(event):
                    self._access(access, (0, self._device.layers), "decode")
            for outcome in self._follower.feed(step):
                self._holdings.note(outcome)
                if isinstance(outcome, Prefill):
                    self._waiting.append(outcome)
        digest = self._follower.end()
        timings = self._watch.settle(self._clock.step)
        return SimulatedRecording(digest, timings, self._memory.checked, self._hazards.checked)

    def _advance(self, time_ns: int) -> None:
        clock = self._clock
        if time_ns > clock.now_ns:
            clock.after(time_ns - clock.now_ns, lambda: None)
        while 0 <= clock.next_ns() <= time_ns:
            clock.step()

    def _until_replied(self, flight: FlightId) -> None:
        while True:
            for reply in self._controller.poll():
                self._replied[reply.flight] = None
            if flight in self._replied:
                del self._replied[flight]
                return
            self._step(f"a reply for flight {flight}")

    def _until_reached(self, mark: Mark) -> None:
        while not self._device.query(mark):
            self._step("the end of a forward pass")

    def _step(self, wanted: str) -> None:
        if self._clock.next_ns() < 0:
            raise StuckError(f"{self._recording.path}: expected {wanted}, and nothing is in flight")
        self._clock.step()

    def _launch(self) -> None:
        """One pass over the prefills since the last pass; it reads and writes in no time."""
        prefills, self._waiting = self._waiting, []
        if not prefills:
            return
        loads = {
            marks: None
            for prefill in prefills
            for flight in prefill.after
            if (marks := self._controller.load_marks(flight))
        }
        for layer in range(self._device.layers):
            for marks in loads:
                self._device.wait(self._stream, marks[layer])
            for prefill in prefills:
                self._touch(prefill, (layer, layer + 1))
        mark = self._device.record(self._stream)
        for prefill in prefills:
            self._passes[prefill.flight] = mark

    def _touch(self, prefill: Prefill, layers: tuple[int, int]) -> None:
        why = f"prefill of request {prefill.request}, flight {prefill.flight}"
        for access in (*self._accesses.first(prefill), *self._accesses.last(prefill)):
            self._access(access, layers, why)

    def _access(self, access: Access, layers: tuple[int, int], why: str) -> None:
        self._device.touch(self._stream, access.touch(layers, why))
