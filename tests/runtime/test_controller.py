"""The controller on the simulated device: batches behind the depth, and replies in order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.actions import Backup, Copy, Load
from hicache.core.events import BackupDone, LoadDone, Reply
from hicache.core.types import Tier
from hicache.devices.base import Access, CopyJob, Device, Stream
from hicache.runtime.controller import ControllerOptions, TransferController
from sim.clock import Clock
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions
from tests.sim.found_out import run
from tests.tiny import pages

LAYERS = 3
SIZE = 64
PLACES = {(tier, name): SIZE for tier in (Tier.DEVICE, Tier.HOST) for name in ("full", "swa")}


class Spy(HazardDevice):
    """Notes copies."""

    def __init__(self, inner: Device, hazards: Hazards) -> None:
        super().__init__(inner, hazards)
        self.copies: list[tuple[str, list[int], list[int], tuple[int, int]]] = []

    def copy(self, stream: Stream, job: CopyJob) -> None:
        pages = job.source.tolist(), job.target.tolist()
        self.copies.append((job.component, *pages, job.layers))
        super().copy(stream, job)


class Bench:
    def __init__(
        self,
        failing: frozenset[int] = frozenset(),
        options: ControllerOptions | None = None,
    ) -> None:
        self.clock = Clock()
        device_options = SimDeviceOptions(
            {"full": (1000,) * LAYERS, "swa": (500,) * LAYERS},
            faults=lambda number, _: number in failing,
        )
        link = Link(self.clock, 10**9, 10**9, 100)
        self.sim = SimDevice(self.clock, link, device_options, Memory(PLACES, LAYERS))
        self.device = Spy(self.sim, Hazards(PLACES, LAYERS))
        self.controller = TransferController(self.device, options)
        self.compute = self.device.stream("compute")
        for component in ("full", "swa"):
            every = np.arange(SIZE)
            self.device.access(self.compute, Access(component, every, "w", (0, LAYERS), "start"))

    def drain(self) -> list[Reply]:
        run(self.clock)
        return self.controller.poll()


def backup(transfer: int, *copies: Copy) -> Backup:
    return Backup(transfer, copies)


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
