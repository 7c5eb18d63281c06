"""The controller on the simulated device: batches, order, replies, and waits that matter."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.actions import Backup, Copy, Load
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.core.types import Tier
from hicache.devices.base import Access, CopyJob, Device, DeviceEvent, Stream
from hicache.runtime.controller import ControllerOptions, TransferController
from sim.clock import Clock
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.errors import HazardError
from tests.sim.clocks import run
from tests.tiny import pages

LAYERS = 3
SIZE = 64
STREAMS = 6  # of two stages
PLACES = {(tier, name): SIZE for tier in (Tier.DEVICE, Tier.HOST) for name in ("full", "swa")}


class Spy(HazardDevice):
    """Notes copies; forgets the waits of the stream named `deaf`."""

    deaf = ""

    def __init__(self, inner: Device, hazards: Hazards) -> None:
        super().__init__(inner, hazards)
        self.copies: list[tuple[str, list[int], list[int], tuple[int, int]]] = []

    def wait(self, stream: Stream, device_event: DeviceEvent) -> None:
        if not self.deaf or stream != self.stream(self.deaf):
            super().wait(stream, device_event)

    def copy(self, stream: Stream, job: CopyJob) -> None:
        pages = job.source.tolist(), job.target.tolist()
        self.copies.append((job.component, *pages, job.layers))
        super().copy(stream, job)


class Bench:
    def __init__(
        self,
        failing: frozenset[int] = frozenset(),
        options: ControllerOptions | None = None,
        stages: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.clock = Clock()
        device_options = SimDeviceOptions(
            {"full": (1000,) * LAYERS, "swa": (500,) * LAYERS},
            faults=lambda number, _: number in failing,
        )
        link = Link(self.clock, 10**9, 10**9, 100)
        self.sim = SimDevice(self.clock, link, device_options, Memory(PLACES, LAYERS))
        self.device = Spy(self.sim, Hazards(PLACES, LAYERS, STREAMS))
        self.controller = TransferController(self.device, options, stages)
        self.compute = self.device.stream("compute")
        for component in ("full", "swa"):
            every = np.arange(SIZE)
            self.device.access(self.compute, Access(component, every, "w", (0, LAYERS), "start"))

    def drain(self) -> list[Reply]:
        run(self.clock)
        return self.controller.poll()


def backup(transfer: int, *copies: Copy) -> Backup:
    return Backup(transfer, copies)


def test_queued_operations_go_out_as_one_batch_grouped_by_component() -> None:
    bench = Bench()
    swa = Copy("swa", pages(9), pages(8))
    bench.controller.submit(backup(1, Copy("full", pages(1, 2), pages(3, 4)), swa))
    bench.controller.submit(backup(2, Copy("full", pages(5), pages(6))))
    assert bench.device.copies == []
    bench.controller.start()
    assert bench.device.copies == [
        ("full", [1, 2, 5], [3, 4, 6], (0, LAYERS)),
        ("swa", [9], [8], (0, LAYERS)),
    ]
    assert bench.controller.poll() == []
    assert bench.drain() == [BackupDone(1), BackupDone(2)]
    assert bench.controller.poll() == []
    for source, target in ((1, 3), (2, 4), (5, 6)):
        here = bench.device.digest(Tier.DEVICE, "full", source)
        assert here == bench.device.digest(Tier.HOST, "full", target)


def test_a_load_of_several_components_has_one_mark_per_layer() -> None:
    """A window or a state arrives with the rows of its layer, not after all of them."""
    bench = Bench()
    swa = Copy("swa", pages(9), pages(8))
    bench.controller.submit(Load(1, 0, (Copy("full", pages(1, 2), pages(3, 4)), swa)))
    bench.controller.submit(Load(2, 0, (Copy("swa", pages(5), pages(6)),)))
    bench.controller.start()
    device_events = bench.controller.load_events(1)
    assert device_events == bench.controller.load_events(2)
    assert len(device_events) == LAYERS
    assert bench.device.copies == [
        copy
        for layer in range(LAYERS)
        for copy in (
            ("full", [1, 2], [3, 4], (layer, layer + 1)),
            ("swa", [9, 5], [8, 6], (layer, layer + 1)),
        )
    ]


def test_a_failed_copy_fails_its_batch_and_no_other() -> None:
    bench = Bench(failing=frozenset({1}))
    for transfer in (1, 2, 3):
        bench.controller.submit(backup(transfer, Copy("full", pages(transfer), pages(transfer))))
        if transfer != 2:
            bench.controller.start()
    assert bench.drain() == [BackupDone(1), BackupDone(2, False), BackupDone(3, False)]


def test_batches_behind_the_depth_are_merged_into_one() -> None:
    bench = Bench(options=ControllerOptions(backup_batches=1))
    for transfer in (1, 2, 3):
        bench.controller.submit(backup(transfer, Copy("full", pages(transfer), pages(transfer))))
        bench.controller.start()
    assert bench.device.copies == [("full", [1], [1], (0, LAYERS))]
    assert bench.drain() == [BackupDone(1)]
    bench.controller.start()
    assert bench.device.copies[1:] == [("full", [2, 3], [2, 3], (0, LAYERS))]
    assert bench.drain() == [BackupDone(2), BackupDone(3)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("bl"), st.sampled_from(["", "s", "p", "sp"])), max_size=20),
    st.frozensets(st.integers(1, 40)),
    st.integers(1, 3),
)
def test_each_transfer_is_answered_once_and_in_order_per_direction(
    steps: list[tuple[str, str]], failing: frozenset[int], depth: int
) -> None:
    """Backups and loads share no page, and copy 0 brings what loads read: any order is legal."""
    bench = Bench(failing, ControllerOptions(backup_batches=depth))
    bench.controller.submit(backup(1000, Copy("full", pages(60), pages(60))))
    bench.controller.start()
    replies = bench.drain()
    for number, (kind, then) in enumerate(steps):
        if kind == "b":
            copy = Copy("full", pages(number), pages(number))
            bench.controller.submit(backup(number, copy))
        else:
            load = Copy("full", pages(60), pages(20 + number))
            bench.controller.submit(Load(number, 0, (load,)))
        if "s" in then:
            bench.controller.start()
        if "p" in then:
            run(bench.clock, lambda: bench.clock.now_ns % 3 > 0)
            replies += bench.controller.poll()
    for _ in range(len(steps) + 2):
        bench.controller.start()
        replies += bench.drain()
    assert bench.controller.unanswered == 0
    for kind, reply in (("b", BackupDone), ("l", LoadDone)):
        transfers = [r.transfer for r in replies if type(r) is reply and r.transfer != 1000]
        assert transfers == [number for number, (text, _) in enumerate(steps) if text == kind]


@pytest.mark.parametrize("deaf", ["", "write", "load"])
def test_both_queues_wait_for_the_models_own_work(
    monkeypatch: pytest.MonkeyPatch, deaf: str
) -> None:
    """The host has not seen the forward pass end, so only the wait on its event orders them."""
    monkeypatch.setattr(Spy, "deaf", deaf)
    bench = Bench()
    run(bench.clock)

    def both() -> None:
        bench.controller.submit(backup(1, Copy("full", pages(1), pages(1))))
        bench.controller.submit(Load(2, 0, (Copy("full", pages(2), pages(3)),)))
        bench.controller.start()

    if deaf:
        with pytest.raises(HazardError, match=f"on stream {deaf} is not ordered after the write"):
            both()
    else:
        both()


def test_each_stage_waits_for_its_own_passes_and_the_last_one_ends_a_transfer() -> None:
    bench = Bench(stages=((0, 1), (1, LAYERS)))
    passes, every = bench.device.stream("compute 1"), np.arange(SIZE)
    bench.device.wait(passes, bench.device.record(bench.compute))
    bench.device.access(passes, Access("full", every, "w", (1, LAYERS), "a pass"))
    bench.controller.submit(backup(1, Copy("full", pages(1), pages(1))))
    bench.controller.start()
    assert bench.drain() == [BackupDone(1)]
    bench.controller.submit(Load(2, 0, (Copy("full", pages(1), pages(3)),)))
    bench.controller.start()
    device_events = bench.controller.load_events(2)
    while not (replies := bench.controller.poll()):
        bench.clock.step()
    assert replies == [LoadDone(2)]
    assert all(bench.sim.query(device_event) for device_event in device_events)
