"""Replays a recording on the simulated device, in the recorded order.

Feeds recorded events to a new core while its transfers run. Everything is issued at its recorded
time, or later if the simulator has not finished what the next event reports. Bytes and hazards are
checked all the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.actions import Cached, Granted, Outcome, Prefill, Released, Restarted
from hicache.core.events import (
    BackupDone,
    Event,
    Finished,
    LoadDone,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import FlightId, RequestId
from hicache.devices.base import Mark
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, ControllerOptions, TransferController
from hicache.runtime.recording import Follower
from hicache.runtime.recording_format import Recording
from sim.device.hazards import HazardDevice
from sim.engine.accesses import Access, Accesses
from sim.errors import StuckError
from sim.hardware.profile import HardwareProfile
from sim.machine import build
from sim.options import WorldOptions

from .stopwatch import Stopwatch, Timing, layer_bytes


@dataclass(frozen=True, slots=True)
class SimulatedRecording:
    """digest: of the decisions. byte_checks: comparisons. access_checks: ordered accesses."""

    digest: str
    timings: list[Timing]
    byte_checks: int
    access_checks: int


class Holdings:
    """The pages and the progress of the requests of a recording, derived from its outcomes. Call
    `note` for every outcome, and `decoded` before every event."""

    def __init__(self, accesses: Accesses) -> None:
        self._accesses = accesses
        self._latest: dict[RequestId, Prefill | Cached | Granted] = {}
        self._computed: dict[RequestId, int] = {}

    def note(self, outcome: Outcome) -> None:
        if isinstance(outcome, Prefill):
            self._computed[outcome.request] = outcome.end_token
        if isinstance(outcome, Prefill | Cached | Granted):
            self._latest[outcome.request] = outcome
        elif isinstance(outcome, Released | Restarted):
            self._latest.pop(outcome.request, None)
            self._computed.pop(outcome.request, None)

    def decoded(self, event: Event) -> list[Access]:
        """The accesses of the decode steps of the event's request since the last call.

        They reach up to the token that the event declares computed. The core may free pages
        afterwards.
        """
        if isinstance(event, PagesWanted):
            computed = event.computed_tokens
        elif isinstance(event, Finished):
            computed = event.length
        elif isinstance(event, Retracted):
            computed = event.committed_tokens
        else:
            return []
        request = event.request
        latest, since = self._latest.get(request), self._computed.get(request, 0)
        if latest is None or computed <= since:
            return []
        self._computed[request] = computed
        why = f"decode of request {request}"
        return self._accesses.decoded(latest.tables, latest.states, since, computed, why)


class OnSimulator:
    """One recording on the simulated device: its events go to a new core, whose transfers the
    device runs. seed: of the simulator's draws, which change no decision."""

    def __init__(
        self, recording: Recording, model: ModelDescription, profile: HardwareProfile, seed: int = 0
    ) -> None:
        config = recording.config
        options = WorldOptions(checks="every", seed=seed)
        self._machine = machine = build(config, model, profile, model.layers, options)
        assert machine.hazards is not None
        self._clock = machine.clock
        self._watch = Stopwatch(machine.sim, layer_bytes(model, config.page_size))
        self._passes: dict[FlightId, Mark] = {}
        self._recording = recording
        self._device = device = HazardDevice(self._watch, machine.hazards)
        # as on the device: every start issues all queued transfers as one batch
        limits = ControllerOptions(backup_batches=ControllerOptions().capacity)
        self._controller = TransferController(device, limits)
        self._follower = Follower(recording, self._controller)
        self._stream = device.stream(COMPUTE)
        self._replied: dict[FlightId, None] = {}
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
                mark = self._passes.pop(event.flight)
                while not self._device.query(mark):
                    self._step("the end of a forward pass")
            # all accesses of decode steps at once, before the core commits the tokens
            for access in self._holdings.decoded(event):
                self._access(access, (0, self._device.layers), "decode")
            for outcome in self._follower.feed(step):
                self._holdings.note(outcome)
                if isinstance(outcome, Prefill):
                    self._waiting.append(outcome)
        digest = self._follower.end()
        timings = self._watch.settle(self._clock.step)
        memory, hazards = self._machine.memory, self._machine.hazards
        assert memory is not None
        assert hazards is not None
        return SimulatedRecording(digest, timings, memory.checked, hazards.checked)

    def _until_replied(self, flight: FlightId) -> None:
        while flight not in self._replied:
            for reply in self._controller.poll():
                self._replied[reply.flight] = None
            if flight not in self._replied:
                self._step(f"a reply for flight {flight}")
        del self._replied[flight]

    def _launch(self) -> None:
        """One pass over the prefills since the last pass; it reads and writes in no time."""
        prefills, self._waiting = self._waiting, []
        loads = {
            marks: None
            for prefill in prefills
            for flight in prefill.after
            if (marks := self._controller.load_marks(flight))
        }
        for layer in range(self._device.layers) if prefills else ():
            for marks in loads:
                self._device.wait(self._stream, marks[layer])
            for prefill in prefills:
                why = f"prefill of request {prefill.request}, flight {prefill.flight}"
                for access in (*self._accesses.first(prefill), *self._accesses.last(prefill)):
                    self._access(access, (layer, layer + 1), why)
        if prefills:
            mark = self._device.record(self._stream)
            self._passes |= {prefill.flight: mark for prefill in prefills}

    def _access(self, access: Access, layers: tuple[int, int], why: str) -> None:
        self._device.touch(self._stream, access.touch(layers, why))

    def _advance(self, time_ns: int) -> None:
        clock = self._clock
        if time_ns > clock.now_ns:
            clock.after(time_ns - clock.now_ns, lambda: None)
        while 0 <= clock.next_ns() <= time_ns:
            clock.step()

    def _step(self, wanted: str) -> None:
        if self._clock.next_ns() < 0:
            raise StuckError(f"{self._recording.path}: expected {wanted}, and nothing is in flight")
        self._clock.step()
