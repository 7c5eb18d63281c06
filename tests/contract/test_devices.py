"""What every device owes its caller, run over each one in `RIGS`.

A new device is one function that returns a `Rig`, and one line in `RIGS`.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.types import NO_PAGES, Tier
from hicache.devices.base import (
    Access,
    CopyJob,
    Device,
    DeviceEvent,
    DeviceOptions,
    Direction,
    Stream,
)
from hicache.devices.cpu import CpuDevice
from hicache.devices.cuda import FEW, CudaDevice
from sim.clock import Clock
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions
from tests.devices.at_once import AtOnce
from tests.sim.found_out import run
from tests.tiny import pages, tiny

LAYERS = 4
DEVICE_PAGES = 8
HOST_PAGES = 12
ALL = (0, LAYERS)
D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE

TINY = tiny(LAYERS)


class Rig(Protocol):
    """A device of LAYERS layers with one component `full` of DEVICE_PAGES and HOST_PAGES pages."""

    @property
    def device(self) -> Device: ...

    def settle(self, device_event: DeviceEvent) -> None:
        """Return once the event is reached and the host may see that."""

    def close(self) -> None:
        """Give back threads and memory."""


class RealRig:
    """The CPU device, or the CUDA device on CUDA or on an accelerator that acts at once."""

    def __init__(self, backend: str = "", few: int = FEW, acts: AtOnce | None = None) -> None:
        sizes = (TINY, 2, {"full": DEVICE_PAGES}, {"full": HOST_PAGES})
        self.device: CpuDevice | CudaDevice
        if backend:
            options = DeviceOptions(layout="page_first_direct", io_backend=backend)
            self.device = CudaDevice(*sizes, options, few=few, accelerator=acts)
        else:
            self.device = CpuDevice(*sizes)

    def settle(self, device_event: DeviceEvent) -> None:
        self.device.synchronize(device_event)

    def close(self) -> None:
        self.device.close()


class SimRig:
    def __init__(self) -> None:
        self.clock = Clock()
        places = {(Tier.DEVICE, "full"): DEVICE_PAGES, (Tier.HOST, "full"): HOST_PAGES}
        options = SimDeviceOptions({"full": (64,) * LAYERS})
        link = Link(self.clock, single=10**9, shared=10**9, latency_ns=1000)
        self.device = SimDevice(self.clock, link, options, Memory(places, LAYERS))

    def settle(self, device_event: DeviceEvent) -> None:
        run(self.clock, lambda: not self.device.query(device_event))

    def close(self) -> None:
        run(self.clock)


# A thread issues every copy, but for the first on an accelerator that acts at once.
RIGS: dict[str, Callable[[], Rig]] = {
    "cpu": RealRig,
    "sim": SimRig,
    "cuda-at-once": lambda: RealRig("direct", FEW, AtOnce(late=True)),
    "cuda-thread": lambda: RealRig("direct", 0, AtOnce(late=True)),
    "cuda-direct": lambda: RealRig("direct", 0),
    "cuda-kernel": lambda: RealRig("kernel", 0),
}
GPU = ("cuda-direct", "cuda-kernel")
NAMES = [pytest.param(name, marks=[pytest.mark.gpu] * (name in GPU)) for name in RIGS]


@pytest.fixture(params=NAMES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = RIGS[request.param]()
    yield made
    made.close()


def order(device: Device, first: Stream, then: Stream) -> None:
    device.wait(then, device.record(first))


def settled(rig: Rig, stream: Stream) -> DeviceEvent:
    device_event = rig.device.record(stream)
    rig.settle(device_event)
    assert rig.device.query(device_event)
    return device_event


def test_one_stream_keeps_its_order(rig: Rig) -> None:
    device = rig.device
    stream = device.stream("compute")
    for target in (0, 1, 2):
        device.access(stream, Access("full", pages(3), "w", ALL, "test"))
        device.copy(stream, CopyJob(D2H, "full", pages(3), pages(target), ALL, "test"))
    settled(rig, stream)
    hosts = [device.digest(Tier.HOST, "full", page) for page in (0, 1, 2)]
    assert len(set(hosts)) == 3
    assert device.digest(Tier.DEVICE, "full", 3) == hosts[2]


def test_a_mark_is_reported_reached_only_after_its_work(rig: Rig) -> None:
    device = rig.device
    compute, write = device.stream("compute"), device.stream("write")
    for turn in range(6):
        device.access(compute, Access("full", pages(0), "w", ALL, "test"))
        order(device, compute, write)
        device.copy(write, CopyJob(D2H, "full", pages(0), pages(turn), ALL, "test"))
        device_event = device.record(write)
        if not device.query(device_event):
            rig.settle(device_event)
        copied = device.digest(Tier.HOST, "full", turn)
        assert copied == device.digest(Tier.DEVICE, "full", 0)
        order(device, write, compute)


def test_an_empty_copy_is_no_error(rig: Rig) -> None:
    device = rig.device
    stream = device.stream("load")
    device.copy(stream, CopyJob(H2D, "full", NO_PAGES, NO_PAGES, ALL, "load"))
    device.access(stream, Access("full", NO_PAGES, "w", ALL, "prefill"))
    assert not device.failed(settled(rig, stream))


_LAYER_RANGE = st.tuples(st.integers(0, LAYERS), st.integers(0, LAYERS)).map(
    lambda ends: (min(ends), max(ends))
)
_STEP = st.tuples(
    st.sampled_from(["access", "d2h", "h2d"]),
    st.sampled_from(["compute", "write", "load"]),
    st.lists(st.integers(0, DEVICE_PAGES - 1), min_size=1, max_size=4, unique=True),
    st.permutations(range(HOST_PAGES)),
    _LAYER_RANGE,
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=16, deadline=None)
@given(steps=st.lists(_STEP, max_size=14))
def test_ordered_programs_agree_with_a_table_of_writers(
    name: str, steps: list[tuple[str, str, list[int], list[int], tuple[int, int]]]
) -> None:
    """Each step waits for the one before, so a table of writes says which pages are equal."""
    rig = RIGS[name]()
    device = rig.device
    table: dict[tuple[Tier, int], list[object]] = {}
    for tier, count in ((Tier.DEVICE, DEVICE_PAGES), (Tier.HOST, HOST_PAGES)):
        table.update({(tier, page): [None] * LAYERS for page in range(count)})
    # What was never written may not be copied, so everything starts written.
    start = device.stream("compute")
    for page in range(DEVICE_PAGES):
        device.access(start, Access("full", pages(page), "w", ALL, "start"))
        table[Tier.DEVICE, page] = [("start", page)] * LAYERS
    for page in range(HOST_PAGES):
        device.copy(
            start, CopyJob(D2H, "full", pages(page % DEVICE_PAGES), pages(page), ALL, "start")
        )
        table[Tier.HOST, page] = list(table[Tier.DEVICE, page % DEVICE_PAGES])
    last = device.record(start)
    for number, (kind, stream_name, here, hosts, layers) in enumerate(steps):
        stream = device.stream(stream_name)
        device.wait(stream, last)
        there = hosts[: len(here)]
        if kind == "access":
            device.access(stream, Access("full", pages(*here), "w", layers, "step"))
            for page in here:
                for layer in range(*layers):
                    table[Tier.DEVICE, page][layer] = (number, page)
        else:
            down = kind == "d2h"
            pair = (here, there) if down else (there, here)
            way, (near, far) = D2H if down else H2D, (pages(*numbers) for numbers in pair)
            device.copy(stream, CopyJob(way, "full", near, far, layers, "step"))
            source, target = (Tier.DEVICE, Tier.HOST) if down else (Tier.HOST, Tier.DEVICE)
            for item, other in zip(*pair, strict=True):
                table[target, other][slice(*layers)] = table[source, item][slice(*layers)]
        last = device.record(stream)
    rig.settle(last)
    by_content: dict[tuple[object, ...], set[bytes]] = {}
    for (tier, page), row in table.items():
        by_content.setdefault(tuple(row), set()).add(device.digest(tier, "full", page))
    rig.close()
    assert all(len(digests) == 1 for digests in by_content.values())
    assert len({next(iter(digests)) for digests in by_content.values()}) == len(by_content)
