"""What the CPU device adds to what every device owes its caller (tests/contract/test_devices)."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from hicache.core.errors import CallerError, CoreBug
from hicache.core.types import Tier
from hicache.devices.base import Access, Area, CopyJob, DeviceEvent, Stream
from hicache.devices.cpu import CpuDevice
from tests.contract.test_devices import ALL, D2H, DEVICE_PAGES, HOST_PAGES, LAYERS, TINY
from tests.needs import PATIENCE_S
from tests.tiny import pages

FIRST = Area(Tier.DEVICE, "full", pages(0), ALL)


def make_cpu() -> CpuDevice:
    return CpuDevice(TINY, 2, {"full": DEVICE_PAGES}, {"full": HOST_PAGES})


def test_cpu_marks_behind_unfinished_work_are_not_reached() -> None:
    entered, opened = threading.Event(), threading.Event()

    def gate(_: object) -> None:
        entered.set()
        assert opened.wait(PATIENCE_S)

    with make_cpu() as device:
        compute, write, load = (device.stream(name) for name in ("compute", "write", "load"))
        device.access(compute, Access("full", pages(0), "w", ALL, "test"))
        device.read(compute, FIRST, gate)
        record = device.record(compute)
        device.wait(write, record)
        device.copy(write, CopyJob(D2H, "full", pages(0), pages(0), ALL, "test"))
        behind = device.record(write)
        free = device.record(load)
        try:
            assert entered.wait(PATIENCE_S)
            device.synchronize(free)
            assert [device.query(device_event) for device_event in (free, record, behind)] == [
                True,
                False,
                False,
            ]
            with pytest.raises(CallerError, match="reached"):
                device.failed(record)
        finally:
            opened.set()
        device.synchronize(behind)
        assert device.query(record)
        assert device.digest(Tier.HOST, "full", 0) == device.digest(Tier.DEVICE, "full", 0)


def test_cpu_ends_its_threads_and_finishes_what_was_issued() -> None:
    before = set(threading.enumerate())
    device = make_cpu()
    stream = device.stream("compute")
    device.access(stream, Access("full", pages(0), "w", ALL, "test"))
    device.copy(stream, CopyJob(D2H, "full", pages(0), pages(3), ALL, "test"))
    device.close()
    device.close()
    assert set(threading.enumerate()) == before
    assert device.digest(Tier.HOST, "full", 3) == device.digest(Tier.DEVICE, "full", 0)
    with pytest.raises(CallerError, match="closed"):
        device.record(stream)


def test_cpu_reports_a_crash_on_a_worker() -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    device = make_cpu()
    stream = device.stream("compute")
    device.read(stream, FIRST, fail)
    with pytest.raises(CoreBug, match="crashed"):
        device.synchronize(device.record(stream))
    with pytest.raises(CoreBug, match="crashed"):
        device.copy(stream, CopyJob(D2H, "full", pages(0), pages(0), ALL, "test"))
    with pytest.raises(CoreBug, match="crashed"):
        device.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": pages(0, 1)}, "as many targets"),
        ({"source": pages(DEVICE_PAGES)}, "expected 0 to 7"),
        ({"source": pages(-1)}, "expected 0 to 7"),
        ({"target": pages(HOST_PAGES)}, "expected 0 to 11"),
        ({"component": "swa"}, "full on device"),
        ({"layers": (0, LAYERS + 1)}, "layers"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_cpu_refuses_impossible_work(change: dict[str, Any], words: str, again: bool) -> None:
    """Also after a copy with the same pages, which are not looked at again."""
    job = CopyJob(D2H, "full", pages(0), pages(0), ALL, "test")
    with make_cpu() as device:
        stream = device.stream("write")
        if again:
            device.copy(stream, job)
        with pytest.raises(CallerError, match=words):
            device.copy(stream, replace(job, **change))
        with pytest.raises(CallerError, match="stream"):
            device.record(Stream(5))
        with pytest.raises(CallerError, match="event"):
            device.query(DeviceEvent(0))
