"""The device seam: recorded events on the simulated device and on real bytes decide the same, every
page arrives whole in both directions, and a wait that is missing is found.

A device is driven as an engine drives it: transfers by the controller, passes by touches.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Backup, Load, Prefill
from hicache.core.core import Core
from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import Tier
from hicache.devices.base import Access, DeviceOptions, Front
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import CudaDevice
from hicache.models import ModelDescription
from hicache.runtime.controller import TransferController
from hicache.runtime.encoding import Decisions
from hicache.runtime.recording import Recording
from sim.clock import Clock
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.errors import HazardError
from tests.sim.workloads import hybrid
from tests.tiny import tiny

from .playing import GOLDEN, RECORDINGS, recorded

LAYERS = 3
WAYS = [
    *((layout, "kernel") for layout in ("layer_first", "page_first", "page_head")),
    *(("page_first_direct", way) for way in ("kernel", "direct")),
    ("layer_first", "direct"),
]
MOVED = [name for name in RECORDINGS if min(recorded(name).config.host_pages)]
ROOMY = "drawn-53"  # many loads and backups, of two components
Turn = Callable[[], object]


def places_of(recording: Recording) -> dict[tuple[Tier, str], int]:
    config = recording.config
    both = ((Tier.DEVICE, config.device_pages), (Tier.HOST, config.host_pages))
    return {
        (tier, name): count
        for tier, sizes in both
        for name, count in zip(config.components, sizes, strict=True)
    }


@contextmanager
def simulated(recording: Recording) -> Iterator[tuple[Any, Turn]]:
    clock = Clock()
    link = Link(clock, single=10**9, shared=10**9, latency_ns=1000)
    options = SimDeviceOptions(dict.fromkeys(recording.config.components, (64,) * LAYERS))
    yield SimDevice(clock, link, options, Memory(places_of(recording), LAYERS)), clock.step


def model_of(recording: Recording) -> ModelDescription:
    return hybrid(recording.config.components, 4, tiny(LAYERS))


@contextmanager
def real(
    recording: Recording,
    layout: str = "page_first",
    io_backend: str = "kernel",
    kind: Any = CpuDevice,
) -> Iterator[tuple[Any, Turn]]:
    places, page = places_of(recording), recording.config.page_size
    sizes = [
        {name: count for (tier, name), count in places.items() if tier is item}
        for item in (Tier.DEVICE, Tier.HOST)
    ]
    options = DeviceOptions(layout=layout, io_backend=io_backend)
    with kind(model_of(recording), page, sizes[0], sizes[1], options) as device:
        yield device, lambda: time.sleep(0.0002)


gpu = partial(real, kind=CudaDevice)


class OnDevice:
    """Plays a recording. Each reply is fed when the device has given it, too. holds: by page, a
    number for the content that it must have."""

    def __init__(self, recording: Recording, device: Any, turn: Turn) -> None:
        self.recording, self.device, self.turn = recording, device, turn
        self.core, self.controller = Core(recording.config), TransferController(device)
        self.stream = device.stream("compute")
        self.holds: dict[tuple[Tier, str, int], int] = {}
        self.written = self.events = 0
        self.replied: set[int] = set()
        self.moved = {Load: 0, Backup: 0}
        for (tier, name), count in places_of(recording).items():
            if tier is Tier.DEVICE:
                self.write(name, np.arange(count))

    def write(self, name: str, pages: Any) -> None:
        self.device.access(self.stream, Access(name, pages, "w", (0, LAYERS), "write"))
        for page in pages.tolist():
            self.written += 1
            self.holds[Tier.DEVICE, name, page] = self.written

    def play(self) -> str:
        decisions = Decisions()
        for step in self.recording.steps:
            if step.event is not None:
                self.events += 1
                if isinstance(step.event, LoadDone | BackupDone):
                    self.wait_for(int(step.event.transfer))
                outcomes = self.core.handle(step.event)
                decisions.add(outcomes)
                for outcome in outcomes:
                    self.carry_out(outcome)
                self.controller.start()
        return decisions.digest()

    def wait_for(self, transfer: int) -> None:
        while transfer not in self.replied:
            self.replied.update(int(item.transfer) for item in self.controller.poll())
            if transfer not in self.replied:
                self.turn()

    def carry_out(self, item: Any) -> None:
        if isinstance(item, Load | Backup):
            self.controller.submit(item)
            near, far = (
                (Tier.DEVICE, Tier.HOST) if isinstance(item, Backup) else (Tier.HOST, Tier.DEVICE)
            )
            for copy in item.copies:
                self.moved[type(item)] += len(copy.source)
                for source, target in zip(copy.source.tolist(), copy.target.tolist(), strict=True):
                    self.holds[far, copy.component, target] = self.holds[
                        near, copy.component, source
                    ]
        if isinstance(item, Prefill):
            self.controller.start()
            for device_event in (
                device_event
                for load in item.after
                for device_event in self.controller.load_events(load)
            ):
                self.device.wait(self.stream, device_event)
            size = self.recording.config.page_size
            for name, table in zip(self.recording.config.components, item.tables, strict=False):
                before, own = table[: item.start_token // size], table[item.start_token // size :]
                read = Access(name, before[before >= 0], "r", (0, LAYERS), "read")
                self.device.access(self.stream, read)
                own = own[: -(-item.end_token // size) - item.start_token // size]
                self.write(name, own[own >= 0])

    def pages(self) -> dict[tuple[str, int], set[bytes]]:
        """By component and content: the SHA-256 of the pages that must hold it, on both tiers."""
        device_event = self.device.record(self.stream)
        while not self.device.query(device_event):
            self.turn()
        result: dict[tuple[str, int], set[bytes]] = {}
        for (tier, name, page), content in self.holds.items():
            result.setdefault((name, content), set()).add(self.device.digest(tier, name, page))
        return result


def sound(run: OnDevice) -> str:
    """The digest of all pages of a run, of which no two contents may be alike."""
    assert run.play() == run.recording.digest
    pages = run.pages()
    assert all(len(each) == 1 for each in pages.values())
    assert len({(name, *each) for (name, _), each in pages.items()}) == len(pages)
    full = sha256(b"".join(item for _, each in sorted(pages.items()) for item in each))
    return full.hexdigest()[:32]


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("device", [simulated, real])
def test_recorded_events_decide_the_same_on_a_device_and_every_page_arrives(
    device: Any, name: str
) -> None:
    with device(recorded(name)) as (made, turn):
        run = OnDevice(recorded(name), made, turn)
        pages = sound(run)
        moved = [run.moved[Backup], run.moved[Load]]
        assert [*moved, pages] == GOLDEN["pages"][f"{device.__name__} {name}"]


@pytest.mark.parametrize(("layout", "io_backend"), WAYS)
def test_a_layout_and_a_way_to_copy_change_no_byte(layout: str, io_backend: str) -> None:
    recording = recorded(ROOMY)
    with real(recording, layout, io_backend) as (made, turn):
        assert sound(OnDevice(recording, made, turn)) == GOLDEN["pages"][f"real {ROOMY}"][2]


class WithoutWait(Front[Any]):
    """Leaves out the wait of this number, from 0."""

    def __init__(self, inner: Any, drop: int) -> None:
        super().__init__(inner)
        self.drop, self.waits = drop, 0

    def wait(self, stream: Any, device_event: Any) -> None:
        self.waits += 1
        if self.waits != self.drop + 1:
            super().wait(stream, device_event)


def watched(device: Any, name: str, drop: int) -> tuple[int, int]:
    """Waits of a run with hazards detected, and the event at which one was found, or 0."""
    recording = recorded(name)
    with device(recording) as (made, turn):
        hazards = Hazards(places_of(recording), LAYERS)
        front = WithoutWait(HazardDevice(made, hazards), drop)
        run = OnDevice(recording, front, turn)
        try:
            run.play()
        except HazardError:
            return front.waits, run.events
        return front.waits, 0


@pytest.mark.parametrize("device", [simulated, real, pytest.param(gpu, marks=pytest.mark.gpu)])
def test_the_first_wait_is_missed_on_any_device_and_a_whole_run_is_clean(device: Any) -> None:
    waits, clean = watched(device, ROOMY, -1)
    assert [waits, clean, *watched(device, ROOMY, 0)] == GOLDEN["waits"]["any device"]


def test_each_wait_of_a_simulated_run_that_is_left_out_is_found() -> None:
    waits, _ = watched(simulated, ROOMY, -1)
    result = [watched(simulated, ROOMY, drop)[1] for drop in range(waits)]
    assert result == GOLDEN["waits"]["simulated"]
