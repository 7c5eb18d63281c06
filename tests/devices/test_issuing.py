"""The thread that issues large copies: which calls it makes, in which order, and how it ends; and
marks over events: what they keep alive, and how many stay open.

On an accelerator that acts at once and fails where an event is used before it is recorded, or where
a thread without a context calls it.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hicache.core.errors import CallerError, CoreBug
from hicache.core.types import Tier
from hicache.devices import _issuing
from hicache.devices._issuing import DeviceEvents, Issued, Line
from hicache.devices.base import Access, Area, CopyJob, DeviceEvent
from hicache.devices.cuda import CudaDevice
from tests.tiny import pages

from .at_once import AtOnce
from .cases import H2D, LAYERS
from .test_cuda import make

ALL = (0, LAYERS)
SOURCE, TARGET = pages(5, 9, 1), pages(0, 2, 1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is a failure after seconds."""
    monkeypatch.setattr(_issuing, "_STUCK_S", 4.0)


def load(device: CudaDevice) -> list[DeviceEvent]:
    """A load as a controller issues it: an event after each layer."""
    stream = device.stream("load")
    device_events = []
    for layer in range(LAYERS):
        device.copy(stream, CopyJob(H2D, "full", SOURCE, TARGET, (layer, layer + 1), "test"))
        device_events.append(device.record(stream))
    return device_events


def settled(device: CudaDevice) -> None:
    device._settled(device._line(device.stream("load")))


def opens_when_waited_for(device: CudaDevice, accelerator: AtOnce) -> None:
    """Shut the door until the caller's thread waits for the other."""
    accelerator.door.clear()
    issuer = device._issuer
    settle = issuer.settle

    def wait(number: int) -> None:
        if not issuer.made(number):
            accelerator.door.set()
        settle(number)

    issuer.settle = wait  # type: ignore[method-assign]


def test_a_load_makes_no_call_on_the_callers_thread() -> None:
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        before = len(accelerator.calls)
        load(device)
        settled(device)
        assert accelerator.calls[before:] == [("copies", False), ("record", False)] * LAYERS


def test_no_mark_is_reached_before_its_record_was_issued() -> None:
    """CUDA says of an event that was never recorded that it is reached."""
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        accelerator.door.clear()
        device_events = load(device)
        assert not any(device.query(device_event) for device_event in device_events)
        with pytest.raises(CallerError, match="query first"):
            device.failed(device_events[0])
        accelerator.door.set()
        device.synchronize(device_events[-1])
        assert all(device.query(device_event) for device_event in device_events)


def test_a_stream_waits_for_a_mark_when_its_record_was_issued_and_not_for_later_ones() -> None:
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        opens_when_waited_for(device, accelerator)
        moved, woken = device._issuer._moved, []
        wait = moved.wait

        def report_of(timeout: float | None = None) -> bool:
            woken.append(wait(timeout))
            return woken[-1]

        moved.wait = report_of  # type: ignore[method-assign]
        device_events = load(device)
        compute = device.stream("compute")
        for layer, device_event in enumerate(device_events):
            device.wait(compute, device_event)
            made = [name for name, own in accelerator.calls if not own]
            assert made.count("record") > layer
        assert [own for name, own in accelerator.calls if name == "wait"] == [True] * LAYERS
        assert woken
        assert all(woken), "the caller goes on when the thread tells it, not when its time is over"


@pytest.mark.parametrize("kind", ["write", "read", "look", "small"])
def test_other_work_of_a_stream_comes_after_its_copies(kind: str) -> None:
    """Seen in the bytes where it reads them, else in the order of calls."""
    accelerator = AtOnce()
    with make(accelerator, few=5) as device:
        stream = device.stream("load")
        device.write_pattern(stream, Area(Tier.HOST, "full", SOURCE, ALL), np.arange(3, dtype="u8"))
        opens_when_waited_for(device, accelerator)
        load(device)  # layers of 6 pieces
        device.copy(stream, CopyJob(H2D, "full", SOURCE, TARGET, ALL, "test"))
        seen: list[bytes] = []
        if kind == "write":
            device.access(stream, Access("full", TARGET, "w", ALL, "test"))
        elif kind == "read":
            device.access(stream, Access("full", TARGET, "r", ALL, "test"))
        elif kind == "look":
            device.read(
                stream, Area(Tier.DEVICE, "full", TARGET, ALL), lambda got: seen.extend(got)
            )
        else:
            device.copy(stream, CopyJob(H2D, "full", SOURCE[:1], TARGET[:1], (0, 1), "test"))
            assert not accelerator.door.is_set()
            settled(device)
            assert accelerator.calls[-1] == ("copies", False), "behind the large one"
        assert accelerator.door.is_set()
        device.synchronize(device.record(stream))
        if kind == "look":
            expected = device.arena.pools(Tier.HOST, "full")[0].view[:, SOURCE].numpy()
            assert np.array_equal(seen[0], expected)


ASKS: dict[str, Callable[[CudaDevice, list[DeviceEvent]], object]] = {
    "query": lambda device, device_events: device.query(device_events[-1]),
    "failed": lambda device, device_events: device.failed(device_events[-1]),
    "synchronize": lambda device, device_events: device.synchronize(device_events[-1]),
    "wait": lambda device, device_events: device.wait(device.stream("compute"), device_events[-1]),
    "record": lambda device, device_events: device.record(device.stream("compute")),
    "copy": lambda device, device_events: load(device),
    "close": lambda device, device_events: device.close(),
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("known", [True, False])
def test_an_error_of_the_driver_reaches_the_caller(
    ask: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, whatever is asked next, and the memory is unregistered all the same."""
    accelerator = AtOnce()
    error = CoreBug("driver error 700") if known else RuntimeError("driver error 700\nand more")

    def refuse(*value: Any) -> None:
        assert accelerator.door.wait(4)
        raise error

    device = make(accelerator, few=0)
    monkeypatch.setattr(device._traffic._copy_backend, "_batch", refuse)
    accelerator.door.clear()
    device_events = load(device)
    accelerator.door.set()
    with device._issuer._moved:
        assert device._issuer._moved.wait_for(lambda: device._issuer.failed, 4)
    with pytest.raises(CoreBug, match=r"driver error 700$") as caught:
        ASKS[ask](device, device_events)
    assert "\n" not in str(caught.value)
    assert known or caught.value.__cause__ is error
    assert "record" not in [name for name, own in accelerator.calls if not own], "none later"
    with contextlib.suppress(CoreBug):
        device.close()
    assert not accelerator.registered


def test_closing_issues_everything_first_and_ends_the_thread() -> None:
    accelerator = AtOnce()
    device = make(accelerator, few=0)
    issued: list[int] = []

    def finish() -> None:
        issued.append([name for name, _ in accelerator.calls].count("copies"))
        assert accelerator.registered

    accelerator.finish = finish  # type: ignore[method-assign]
    load(device)
    thread = device._issuer._thread
    assert thread is not None
    device.close()
    assert issued == [LAYERS]
    assert not thread.is_alive()
    assert not accelerator.registered


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CudaDevice, DeviceEvent, AtOnce]]:
    """A device whose driver does not come back from a copy, and the last event of the load."""
    monkeypatch.setattr(_issuing, "_STUCK_S", 0.01)
    accelerator = AtOnce()
    device = make(accelerator, few=0)
    accelerator.door.clear()
    yield device, load(device)[-1], accelerator
    accelerator.door.set()


def test_a_driver_that_does_not_come_back_is_reported_and_its_memory_stays(
    stuck: tuple[CudaDevice, DeviceEvent, AtOnce],
) -> None:
    device, device_event, accelerator = stuck
    line = r"^device: expected the driver to take a copy within 0.01 s, found .*; end the process"
    for _ in range(2):
        with pytest.raises(CoreBug, match=line):
            device.synchronize(device_event)
    with pytest.raises(CoreBug, match=line):
        device.close()
    assert accelerator.registered, "the driver may still use it"


class Switch(Issued):
    """An event that is reached when told so."""

    def __init__(self) -> None:
        self.on = False

    def query(self) -> bool:
        return self.on

    def synchronize(self) -> None:
        self.on = True


class Thing:
    """Something to be kept alive."""


def test_memory_of_work_lives_until_the_host_sees_the_next_mark() -> None:
    device_events, line, seen = DeviceEvents(), Line(), []
    thing = Thing()
    gone = weakref.ref(thing)
    line.kept.append(thing)
    line.after.append(lambda: seen.append(1))
    del thing
    event = Switch()
    device_event = device_events.record(line, event)
    assert not device_events.reached(device_event)
    assert gone() is not None
    assert not seen
    event.on = True
    assert device_events.reached(device_event)
    assert gone() is None
    assert seen == [1]
    assert device_events.event(device_event) is None


def test_recording_a_mark_forgets_reached_marks() -> None:
    device_events, line = DeviceEvents(), Line()
    for _ in range(1000):
        event = Switch()
        device_events.record(line, event)
        event.on = True
    assert len(device_events) == 1
