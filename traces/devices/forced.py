"""Replays a recording with one stream wait left out and one stream held, to force a race.

Contains the removal of one wait, the choice of the item to hold, and a device that checks its reads
and copies meanwhile. Does not hold streams (see hicache/devices), or detect hazards (see
sim/device/hazards).

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
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Load
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import FlightId, Tier
from hicache.devices.base import (
    Area,
    Bytes,
    CopyJob,
    Device,
    Direction,
    Front,
    Holdable,
    Mark,
    Stream,
    Touch,
    Words,
)
from hicache.memory.pools import contents_of
from hicache.models import ModelDescription
from hicache.runtime.controller import COMPUTE, LOAD, WRITE
from hicache.runtime.recording_format import Recording
from sim.device.hazards import HazardDevice
from sim.engine.accesses import Access
from sim.errors import HazardError, StuckError
from sim.hardware.profile import HardwareProfile
from sim.machine import build
from sim.options import WorldOptions

from .recording_on_sim import Playback, layer_bytes

STREAMS = (COMPUTE, WRITE, LOAD)
_POLL_S = 20e-6
# Items that a held CUDA stream takes without making the host wait: it takes about 1,000 kernels
# (seen on an H100), and an item has some 40.
_QUEUED = 16
_SPOILED = np.uint64(0xDEAD << 48)


class Hold(NamedTuple):
    """Keeps a stream busy before its copy or access number `item`, or before each (-1)."""

    stream: str
    time_ns: int
    item: int = -1


class Wait(NamedTuple):
    """`stream` waits for `behind`, whose items `first` to `last` - 1 only this wait orders."""

    stream: str
    behind: str
    first: int
    last: int

    def holds(self, time_ns: int) -> list[Hold]:
        """Holds that expose the loss of this wait, to be tried in turn. Before a late item, too,
        because the host cannot issue everything to a CUDA stream that is held (see _QUEUED)."""
        firsts = dict.fromkeys((self.first, max(self.first, self.last - _QUEUED)))
        return [Hold(self.behind, time_ns, item) for item in firsts]


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

    def turn(wanted: str) -> None:
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
    playback = _Playback(
        recording, model, _WithoutWait(checked, drop), lambda wanted: time.sleep(_POLL_S)
    )
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


class _Playback(Playback):
    """Passes are answered as soon as they are issued, and marks of loads are kept here, because the
    time at which the controller drops them varies."""

    def __init__(
        self,
        recording: Recording,
        model: ModelDescription,
        device: Device,
        turn: Callable[[str], None],
    ) -> None:
        if any(getattr(step.event, "ok", True) is False for step in recording.steps):
            raise CallerError(
                f"{recording.path}: expected a recording whose transfers all succeeded, found "
                "one that failed; record one without faults"
            )
        super().__init__(recording, device, turn)
        self._bytes = layer_bytes(model, recording.config.page_size)
        self._loads: dict[FlightId, tuple[Mark, ...]] = {}

    def run(self) -> str:
        """Returns the digest of the decisions. Raises DivergedError if they differ."""
        for step in self._recording.steps:
            event = step.event
            if event is None:
                self._controller.start()
                for flight, marks in self._loads.items():
                    self._loads[flight] = marks or self._controller.load_marks(flight)
                self.launch(lambda flight: self._loads.get(flight, ()))
                continue
            if isinstance(event, LoadDone | BackupDone):
                self.until_replied(event.flight)
                self._loads.pop(event.flight, None)
            self._loads |= {one.flight: () for one in self.feed(step) if isinstance(one, Load)}
        for mark in [self._device.record(self._device.stream(name)) for name in STREAMS]:
            self.until_reached(mark)
        return self._follower.end()

    def _access(self, access: Access, layers: tuple[int, int], why: str) -> None:
        """Issues an access, unless the component has no pool in these layers."""
        if any(self._bytes[access.component][layers[0] : layers[1]]):
            super()._access(access, layers, why)


def _merge(known: dict[Stream, int], other: dict[Stream, int]) -> None:
    for stream, items in other.items():
        known[stream] = max(known.get(stream, 0), items)


class CheckedDevice(Front[Holdable]):
    """A device that knows what its pages hold if everything happens in the order of issue.

    Each write has its own content, the targets of a load are overwritten first, and everything that
    is read or copied is compared. Nothing differs if the streams are ordered as they must be.

    wrong: one line for each difference. compared: reads compared. held: holds so far.
    """

    def __init__(
        self, device: Holdable, model: ModelDescription, page_size: int, hold: Hold | None
    ) -> None:
        super().__init__(device)
        self._plans = contents_of(model, page_size)
        self._hold = hold
        self._held = device.stream(hold.stream) if hold else None
        self._issued = 0
        self._written = 0
        # seed of the content of a page in a layer; missing if it was never written
        self._seeds: dict[tuple[Tier, str, int, int], int] = {}
        self.wrong: list[str] = []
        self.compared = 0
        self.held = 0

    def copy(self, stream: Stream, job: CopyJob) -> None:
        near, far = job.near, job.far
        if job.direction is Direction.HOST_TO_DEVICE:
            self.inner.scribble(stream, far, self._fresh(len(far.pages)) | _SPOILED)
        self._hold_before(stream)
        self.inner.copy(stream, job)
        for layer in range(*job.layers):
            for here, there in zip(near.pages.tolist(), far.pages.tolist(), strict=True):
                seed = self._seeds.get((*near.place, layer, here))
                if seed is None:
                    self._seeds.pop((*far.place, layer, there), None)
                else:
                    self._seeds[(*far.place, layer, there)] = seed
        self._compare(stream, far, job.why)

    def touch(self, stream: Stream, touch: Touch) -> None:
        self._hold_before(stream)
        area = touch.area
        if touch.mode == "r":
            self._compare(stream, area, touch.why)
            return
        seeds = self._fresh(len(area.pages))
        self.inner.scribble(stream, area, seeds)
        for layer in range(*area.layers):
            for page, seed in zip(area.pages.tolist(), seeds.tolist(), strict=True):
                self._seeds[(*area.place, layer, page)] = seed

    def _hold_before(self, stream: Stream) -> None:
        if self._hold is None or stream != self._held:
            return
        if self._hold.item in (-1, self._issued):
            self.inner.hold(stream, self._hold.time_ns)
            self.held += 1
        self._issued += 1

    def _compare(self, stream: Stream, area: Area, why: str) -> None:
        """Compares the pages that were written, layer by layer."""
        for layer in range(*area.layers):
            seeds = [self._seeds.get((*area.place, layer, page)) for page in area.pages.tolist()]
            written_pages = [at for at, seed in enumerate(seeds) if seed is not None]
            if written_pages:
                wanted = np.array([seeds[at] for at in written_pages], dtype=np.uint64)
                written = replace(area, pages=area.pages[written_pages], layers=(layer, layer + 1))
                self._peek(stream, written, wanted, why)

    def _peek(self, stream: Stream, area: Area, seeds: Words, why: str) -> None:
        def compare(blocks: tuple[Bytes, ...]) -> None:
            self.compared += 1
            plans = self._plans[area.component]
            for number, (plan, block) in enumerate(zip(plans, blocks, strict=True)):
                expected = plan.stamped(seeds, number, plan.layers_in(*area.layers))
                if not np.array_equal(block, expected):
                    some = area.pages.tolist()[:8]
                    where = f"{area.tier.name.lower()} pages {some} of {plan.pool.name}"
                    self.wrong.append(f"{why}: {where}, layer {area.layers[0]}")

        self.inner.peek(stream, area, compare)

    def _fresh(self, count: int) -> Words:
        first = self._written + 1
        self._written += count
        return np.arange(first, first + count, dtype=np.uint64)
