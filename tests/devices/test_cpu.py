"""What the CPU device adds to what every device owes its caller (tests/contract/test_devices)."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hicache.core.errors import CallerError, CoreBug
from hicache.core.types import Pages, Tier
from hicache.devices.base import Area, CopyJob, DeviceOptions, Mark, Stream, Touch
from hicache.devices.cpu import CpuDevice
from hicache.memory.layouts import Bytes
from tests.contract.test_devices import ALL, D2H, DEVICE_PAGES, H2D, HOST_PAGES, LAYERS, TINY
from tests.patience import PATIENCE_S
from tests.tiny import pages


class Gate:
    """A reader that keeps a CPU stream busy until the `with` block ends or `open` is set."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()

    def __call__(self, *_: object) -> None:
        self.entered.set()
        assert self.open.wait(PATIENCE_S)


def make_cpu(**options: Any) -> CpuDevice:
    return CpuDevice(
        TINY, 2, {"full": DEVICE_PAGES}, {"full": HOST_PAGES}, DeviceOptions(**options)
    )


def test_cpu_marks_behind_unfinished_work_are_not_reached() -> None:
    with make_cpu(reader=(gate := Gate())) as device, gate:
        compute, write, load = (device.stream(name) for name in ("compute", "write", "load"))
        device.touch(compute, Touch("full", pages(0), "w", ALL, "test"))
        device.touch(compute, Touch("full", pages(0), "r", ALL, "test"))
        held = device.record(compute)
        device.wait(write, held)
        device.copy(write, CopyJob(D2H, "full", pages(0), pages(0), ALL, "test"))
        behind = device.record(write)
        free = device.record(load)
        assert gate.entered.wait(PATIENCE_S)
        device.synchronize(free)
        assert device.query(free)
        assert not device.query(held)
        assert not device.query(behind)
        with pytest.raises(CallerError, match="reached"):
            device.failed(held)
        gate.open.set()
        device.synchronize(behind)
        assert device.query(held)
        assert device.digest(Tier.HOST, "full", 0) == device.digest(Tier.DEVICE, "full", 0)


def test_cpu_reader_sees_what_was_copied_layer_by_layer() -> None:
    seen: list[tuple[int, bytes]] = []

    def reader(component: str, found: Pages, layers: tuple[int, int], rows: object) -> None:
        assert isinstance(rows, tuple)
        seen.append((layers[0], rows[0].tobytes()))

    seeds = np.array([17], dtype=np.uint64)
    with make_cpu(content=lambda *_: seeds, reader=reader) as device:
        stream = device.stream("compute")
        device.touch(stream, Touch("full", pages(1), "w", ALL, "test"))
        device.copy(stream, CopyJob(D2H, "full", pages(1), pages(9), ALL, "test"))
        device.copy(stream, CopyJob(H2D, "full", pages(9), pages(2), ALL, "test"))
        for page in (1, 2):
            for layer in range(LAYERS):
                device.touch(stream, Touch("full", pages(page), "r", (layer, layer + 1), "test"))
        device.synchronize(device.record(stream))
    assert seen[:LAYERS] == seen[LAYERS:]
    assert len({data for _, data in seen}) == LAYERS
    assert all(one[0] < other[0] for one, other in pairwise(seen[:LAYERS]))


def test_cpu_ends_its_threads_and_finishes_what_was_issued() -> None:
    before = set(threading.enumerate())
    device = make_cpu()
    stream = device.stream("compute")
    device.touch(stream, Touch("full", pages(0), "w", ALL, "test"))
    device.copy(stream, CopyJob(D2H, "full", pages(0), pages(3), ALL, "test"))
    device.close()
    device.close()
    assert set(threading.enumerate()) == before
    assert device.digest(Tier.HOST, "full", 3) == device.digest(Tier.DEVICE, "full", 0)
    with pytest.raises(CallerError, match="closed"):
        device.record(stream)


def test_cpu_reports_a_crash_on_a_worker() -> None:
    def reader(*_: object) -> None:
        raise ZeroDivisionError

    device = make_cpu(reader=reader)
    stream = device.stream("compute")
    device.touch(stream, Touch("full", pages(0), "r", ALL, "test"))
    with pytest.raises(CoreBug, match="crashed"):
        device.synchronize(device.record(stream))
    with pytest.raises(CoreBug, match="crashed"):
        device.copy(stream, CopyJob(D2H, "full", pages(0), pages(0), ALL, "test"))
    with pytest.raises(CoreBug, match="crashed"):
        device.close()


@pytest.mark.parametrize(
    ("source", "target", "component", "layers", "words"),
    [
        ([0], [0, 1], "full", ALL, "as many targets"),
        ([DEVICE_PAGES], [0], "full", ALL, "expected 0 to 7"),
        ([-1], [0], "full", ALL, "expected 0 to 7"),
        ([0], [HOST_PAGES], "full", ALL, "expected 0 to 11"),
        ([0], [0], "swa", ALL, "full on device"),
        ([0], [0], "full", (0, LAYERS + 1), "layers"),
    ],
)
def test_cpu_refuses_impossible_copies(
    source: list[int], target: list[int], component: str, layers: tuple[int, int], words: str
) -> None:
    with make_cpu() as device:
        stream = device.stream("write")
        with pytest.raises(CallerError, match=words):
            device.copy(
                stream, CopyJob(D2H, component, pages(*source), pages(*target), layers, "test")
            )
        with pytest.raises(CallerError, match="stream"):
            device.record(Stream(5))
        with pytest.raises(CallerError, match="mark"):
            device.query(Mark(0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": pages(DEVICE_PAGES)}, "expected 0 to 7"),
        ({"target": pages(HOST_PAGES)}, "expected 0 to 11"),
        ({"layers": (0, LAYERS + 1)}, "layers"),
    ],
)
def test_cpu_refuses_an_impossible_copy_after_one_with_the_same_pages(
    change: dict[str, Any], words: str
) -> None:
    """What was looked at is looked at again where one of the two arrays or a layer is another."""
    job = CopyJob(D2H, "full", pages(0), pages(0), ALL, "test")
    with make_cpu() as device:
        device.copy(device.stream("write"), job)
        with pytest.raises(CallerError, match=words):
            device.copy(device.stream("write"), replace(job, **change))


@pytest.mark.parametrize("tier", [Tier.DEVICE, Tier.HOST])
@pytest.mark.parametrize("layers", [ALL, (1, 3), (2, 2)])
def test_cpu_scribbles_and_peeks_in_the_order_of_the_stream(
    tier: Tier, layers: tuple[int, int]
) -> None:
    seen: list[tuple[Bytes, ...]] = []
    seeds = np.arange(6, dtype=np.uint64).reshape(3, 2)
    with make_cpu() as device:
        stream = device.stream("write")
        where = pages(5, 2)
        (pool,) = device.arena.pools(tier, "full")
        for turn in seeds:
            device.scribble(stream, Area(tier, "full", where, layers), turn)
            device.peek(stream, Area(tier, "full", where, layers), seen.append)
        device.synchronize(device.record(stream))
        assert len(seen) == len(seeds)
        for turn, found in zip(seeds, seen, strict=True):
            assert (found[0] == pool.plan.stamped(turn, 0, range(*layers))).all()
        untouched = pool.view[:, [page for page in range(pool.view.shape[1]) if page not in where]]
        assert not untouched.any()
        with pytest.raises(CallerError, match="pages: expected 0 to"):
            device.peek(stream, Area(tier, "full", pages(99), layers), seen.append)
        with pytest.raises(CallerError, match="layers"):
            device.scribble(stream, Area(tier, "full", where, (0, LAYERS + 1)), seeds[0])
