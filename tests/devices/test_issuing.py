"""The thread that issues large copies: which calls it makes, in which order, and how it ends.

On an accelerator that acts at once and fails where an event is used before it is recorded, or where
a thread without a context calls it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Copy, Load
from hicache.core.errors import CallerError, CoreBug
from hicache.core.types import Tier
from hicache.devices import _issuing
from hicache.devices._movers import base, direct
from hicache.devices.base import Area, CopyJob, Mark, Touch
from hicache.devices.cuda import CudaDevice
from hicache.runtime.controller import TransferController

from .at_once import AtOnce
from .cases import H2D, LAYERS, pages
from .test_cuda import Watched, make

ALL = (0, LAYERS)
SOURCE, TARGET = pages(5, 9, 1), pages(0, 2, 1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes is a failure after seconds."""
    monkeypatch.setattr(_issuing, "_STUCK_S", 4.0)


def load(device: CudaDevice) -> list[Mark]:
    """A load as a controller issues it: a mark after each layer."""
    stream = device.stream("load")
    marks = []
    for layer in range(LAYERS):
        device.copy(stream, CopyJob(H2D, "full", SOURCE, TARGET, (layer, layer + 1), "test"))
        marks.append(device.record(stream))
    return marks


def settled(device: CudaDevice) -> None:
    with device.on(device.stream("load")):
        pass


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


def test_a_load_of_a_controller_makes_two_calls_on_the_callers_thread() -> None:
    """The mark of the compute stream, after which the load starts, and the wait for it."""
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        controller = TransferController(device)
        controller.submit(Load(1, 1, (Copy("full", SOURCE, TARGET),)))
        before = len(accelerator.calls)
        controller.start()
        settled(device)
        found = accelerator.calls[before:]
        assert [name for name, own in found if own] == ["record", "wait"]
        assert [name for name, own in found if not own] == ["copies", "record"] * LAYERS
        assert [reply.flight for reply in controller.poll()] == [1]


@pytest.mark.parametrize(("few", "own"), [(6 * LAYERS, True), (6 * LAYERS - 1, False)])
def test_a_copy_of_few_pieces_is_made_at_once(few: int, own: bool) -> None:
    """Keys and values of three pages in each layer."""
    accelerator = AtOnce()
    with make(accelerator, few=few) as device:
        device.copy(device.stream("load"), CopyJob(H2D, "full", SOURCE, TARGET, ALL, "test"))
        settled(device)
        assert [made for name, made in accelerator.calls if name == "copies"] == [own]


def test_no_mark_is_reached_before_its_record_was_issued() -> None:
    """CUDA says of an event that was never recorded that it is reached."""
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        accelerator.door.clear()
        marks = load(device)
        assert not any(device.query(mark) for mark in marks)
        with pytest.raises(CallerError, match="query first"):
            device.failed(marks[0])
        accelerator.door.set()
        device.synchronize(marks[-1])
        assert all(device.query(mark) for mark in marks)


def test_a_stream_waits_for_a_mark_when_its_record_was_issued_and_not_for_later_ones() -> None:
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        opens_when_waited_for(device, accelerator)
        moved, woken = device._issuer._moved, []
        wait = moved.wait

        def told(timeout: float | None = None) -> bool:
            woken.append(wait(timeout))
            return woken[-1]

        moved.wait = told  # type: ignore[method-assign]
        marks = load(device)
        compute = device.stream("compute")
        for layer, mark in enumerate(marks):
            device.wait(compute, mark)
            made = [name for name, own in accelerator.calls if not own]
            assert made.count("record") > layer
        assert [own for name, own in accelerator.calls if name == "wait"] == [True] * LAYERS
        assert woken
        assert all(woken), "the caller goes on when the thread tells it, not when its time is over"


@pytest.mark.parametrize("kind", ["write", "read", "look", "hold", "on", "small"])
def test_other_work_of_a_stream_comes_after_its_copies(kind: str) -> None:
    """Seen in the bytes where it reads them, else in the order of calls."""
    accelerator = AtOnce()
    with make(accelerator, few=5) as device:
        stream = device.stream("load")
        device.scribble(stream, Area(Tier.HOST, "full", SOURCE, ALL), np.arange(3, dtype="u8"))
        opens_when_waited_for(device, accelerator)
        load(device)  # layers of 6 pieces
        device.copy(stream, CopyJob(H2D, "full", SOURCE, TARGET, ALL, "test"))
        seen: list[bytes] = []
        if kind == "write":
            device.touch(stream, Touch("full", TARGET, "w", ALL, "test"))
        elif kind == "read":
            device.touch(stream, Touch("full", TARGET, "r", ALL, "test"))
        elif kind == "look":
            device.peek(
                stream, Area(Tier.DEVICE, "full", TARGET, ALL), lambda got: seen.extend(got)
            )
        elif kind == "hold":
            device.hold(stream, 0)
        elif kind == "on":
            with device.on(stream):
                job = CopyJob(H2D, "full", SOURCE, TARGET, ALL, "test")
                device.copy(stream, job)
            assert accelerator.calls[-1] == ("copies", True), "between the calls of torch"
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


def test_other_work_waits_for_all_that_its_stream_was_given_not_for_copies_alone() -> None:
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        opens_when_waited_for(device, accelerator)
        load(device)
        issuer, asked = device._issuer, list[int]()
        settle = issuer.settle

        def wait(number: int) -> None:
            asked.append(number)
            settle(number)

        issuer.settle = wait  # type: ignore[method-assign]
        settled(device)
        assert asked == [2 * LAYERS], "the last record, which comes after the last copy"


def test_following_and_waiting_come_after_the_copies_of_their_own_stream() -> None:
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        mark = device.record(device.stream("compute"))
        accelerator.door.clear()
        load(device)
        device.wait(device.stream("load"), mark)
        device.follow(device.stream("load"))
        accelerator.door.set()
        settled(device)
        made = [name for name, own in accelerator.calls if not own]
        assert made == ["copies", "record"] * LAYERS + ["wait", "wait"]


class Numbered(direct.Mover):
    """A mover that needs page numbers on the device, as the kernel does."""

    needs_numbers = True

    def __init__(self) -> None:
        super().__init__(base.Options(1, None))


def test_what_a_queued_upload_reads_lives_until_its_mark_is_seen_reached() -> None:
    accelerator = Watched()
    with make(accelerator, few=0) as device:
        device._traffic._mover = Numbered()
        accelerator.door.clear()  # else a later mark may ask whether the first one was reached
        first, *_, last = load(device)
        accelerator.door.set()
        settled(device)
        (source,) = accelerator.sources
        assert source() is not None
        assert not device.query(first)
        assert source() is not None
        assert device.query(first)
        assert source() is None
        assert [own for name, own in accelerator.calls if name == "upload"] == [False]
        device.synchronize(last)


@pytest.mark.parametrize("other", [0.0, 0.002])
def test_pythons_lock_changes_hands_more_often_while_there_are_calls(
    other: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """other: what somebody else sets meanwhile, which stays."""
    usual, seen = sys.getswitchinterval(), []

    def batch(*given: Any) -> None:
        seen.append(sys.getswitchinterval())
        if other:
            sys.setswitchinterval(other)

    device = make(AtOnce(), few=0)
    try:
        monkeypatch.setattr(device._traffic._mover, "_batch", batch)
        load(device)
        device.close()
        assert seen[0] == pytest.approx(_issuing._SWITCH_S)
        assert sys.getswitchinterval() == pytest.approx(other or usual)
    finally:
        sys.setswitchinterval(usual)


ASKS: dict[str, Callable[[CudaDevice, list[Mark]], object]] = {
    "query": lambda device, marks: device.query(marks[-1]),
    "failed": lambda device, marks: device.failed(marks[-1]),
    "synchronize": lambda device, marks: device.synchronize(marks[-1]),
    "wait": lambda device, marks: device.wait(device.stream("compute"), marks[-1]),
    "record": lambda device, marks: device.record(device.stream("compute")),
    "copy": lambda device, marks: load(device),
    "close": lambda device, marks: device.close(),
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("known", [True, False])
def test_an_error_of_the_driver_reaches_the_caller(
    ask: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, whatever is asked next, and the memory is unregistered all the same."""
    accelerator = AtOnce()
    error = CoreBug("driver error 700") if known else RuntimeError("driver error 700\nand more")

    def refuse(*given: Any) -> None:
        assert accelerator.door.wait(4)
        raise error

    device = make(accelerator, few=0)
    monkeypatch.setattr(device._traffic._mover, "_batch", refuse)
    accelerator.door.clear()
    marks = load(device)
    accelerator.door.set()
    with device._issuer._moved:
        assert device._issuer._moved.wait_for(lambda: device._issuer.failed, 4)
    with pytest.raises(CoreBug, match=r"driver error 700$") as caught:
        ASKS[ask](device, marks)
    assert "\n" not in str(caught.value)
    assert known or caught.value.__cause__ is error
    assert "record" not in [name for name, own in accelerator.calls if not own], "none later"
    device.close()
    assert not accelerator.registered


def test_a_caller_who_waits_is_told_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes while the caller waits for the thread."""
    accelerator = AtOnce()

    def refuse(*given: Any) -> None:
        assert accelerator.door.wait(4)
        raise CoreBug("driver error 700")

    def work() -> None:
        with make(accelerator, few=0) as device:
            monkeypatch.setattr(device._traffic._mover, "_batch", refuse)
            opens_when_waited_for(device, accelerator)
            device.synchronize(load(device)[-1])

    with pytest.raises(CoreBug, match="driver error 700") as caught:
        work()
    assert not getattr(caught.value, "__notes__", []), "told once"


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
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CudaDevice, Mark, AtOnce]]:
    """A device whose driver does not come back from a copy, and the last mark of the load."""
    monkeypatch.setattr(_issuing, "_STUCK_S", 0.01)
    accelerator = AtOnce()
    device = make(accelerator, few=0)
    accelerator.door.clear()
    yield device, load(device)[-1], accelerator
    accelerator.door.set()


def test_a_driver_that_does_not_come_back_is_reported_and_its_memory_stays(
    stuck: tuple[CudaDevice, Mark, AtOnce],
) -> None:
    device, mark, accelerator = stuck
    line = r"^device: expected the driver to take a copy within 0.01 s, found .*; end the process"
    for _ in range(2):
        with pytest.raises(CoreBug, match=line):
            device.synchronize(mark)
    with pytest.raises(CoreBug, match=line):
        device.close()
    assert accelerator.registered, "the driver may still use it"


def test_closing_alone_reports_a_driver_that_does_not_come_back(
    stuck: tuple[CudaDevice, Mark, AtOnce],
) -> None:
    device, _, accelerator = stuck
    with pytest.raises(CoreBug, match="end the process, its memory stays registered"):
        device.close()
    assert accelerator.registered


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_told_that_it_has_no_such_thread() -> None:
    accelerator = AtOnce()
    with make(accelerator, few=0) as device:
        marks = load(device)
        device.synchronize(marks[-1])
        child = os.fork()
        if not child:
            code = 1
            try:
                load(device)
            except CoreBug as error:
                code = 0 if "found a fork of it" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        load(device)
