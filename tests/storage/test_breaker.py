"""A dead or hanging store: few calls, one notice for each outage, and a way back."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from hicache.storage.base import Status, Value
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.verified import Verified
from tests.storage.memory_store import MemoryStore

OPTIONS = BreakerOptions(failures=3, slow_s=2.0, first_pause_s=1.0, longest_pause_s=4.0)


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class Rig:
    def __init__(self, medium: MemoryStore | None = None) -> None:
        self.medium = medium or MemoryStore()
        self.clock = Clock()
        self.notices: list[str] = []
        self.store = Breaker(self.medium, "file:x", self.clock, self.notices.append, OPTIONS)

    def write(self) -> Status:
        return self.store.write(["key"], [(memoryview(b"v"),)])[0]

    def kill(self) -> None:
        self.medium.answer = Status.FAILED

    def revive(self) -> None:
        self.medium.answer = None


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_store_that_answers_is_always_asked(rig: Rig) -> None:
    assert rig.write() is Status.DONE
    assert rig.store.lookup(["key", "none"]) == [True, False]
    for answer in (Status.FULL, Status.MISSING, Status.CORRUPT):
        rig.medium.answer = answer
        assert [rig.write() for _ in range(10)] == [answer] * 10
    assert rig.notices == []


def test_a_dead_store_is_no_longer_asked_and_told_once(rig: Rig) -> None:
    rig.kill()
    for _ in range(100):
        assert rig.write() is Status.FAILED
        assert rig.store.lookup(["key"]) == [False]
    assert rig.medium.calls == 5  # three writes and the lookups between them
    assert len(rig.notices) == 1
    assert "file:x does not answer (3 calls in a row failed)" in rig.notices[0]
    assert rig.store.stats()["calls_refused"] == 195


def test_failures_that_are_not_in_a_row_do_not_count(rig: Rig) -> None:
    for _ in range(5):
        rig.kill()
        assert [rig.write(), rig.write()] == [Status.FAILED] * 2
        rig.revive()
        assert rig.write() is Status.DONE
    assert not rig.store.out


def test_probes_come_at_doubling_pauses(rig: Rig) -> None:
    rig.kill()
    for _ in range(3):
        rig.write()
    probes = []
    for tenth in range(200):
        rig.clock.s = tenth / 10
        before = rig.medium.calls
        rig.write()
        if rig.medium.calls > before:
            probes.append(rig.clock.s)
    assert probes == [1.0, 3.0, 7.0, 11.0, 15.0, 19.0]
    assert len(rig.notices) == 1


def test_a_store_that_is_back_is_used_again_and_told_once(rig: Rig) -> None:
    for outage in range(1, 4):
        rig.kill()
        for _ in range(10):
            rig.write()
        rig.revive()
        assert rig.write() is Status.FAILED, "the pause is not over"
        rig.clock.s += 1.0
        assert rig.write() is Status.DONE
        assert len(rig.notices) == 2 * outage
        assert rig.notices[-1] == "storage: file:x answers again, after 1.0 s"
    assert rig.store.stats()["outages"] == 3


def test_slow_calls_are_failures(rig: Rig) -> None:
    class Slow(MemoryStore):
        def lookup(self, keys: Sequence[str]) -> list[bool]:
            clock.s += 2.1
            return [False for _ in keys]

    rig = Rig(Slow())
    clock = rig.clock
    for _ in range(10):
        rig.store.lookup(["key"])
    assert rig.store.out
    assert clock.s == pytest.approx(3 * 2.1)


def test_a_call_that_hangs_puts_the_store_out_for_the_others() -> None:
    class Hanging(MemoryStore):
        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            if keys == ["hang"]:
                begun.set()
                go_on.wait(20)
            return super().read(keys, values)

    begun, go_on = threading.Event(), threading.Event()
    rig = Rig(Hanging())
    answers: list[Status] = []
    thread = threading.Thread(
        target=lambda: answers.extend(rig.store.read(["hang"], [(memoryview(bytearray(1)),)]))
    )
    thread.start()
    assert begun.wait(20)
    assert rig.write() is Status.DONE
    rig.clock.s = 2.1
    assert Verified(rig.store).look() == 0
    assert len(rig.notices) == 1, "although nobody calls it"
    assert rig.write() is Status.FAILED
    assert "a call has taken more than 2 s" in rig.notices[0]
    rig.clock.s = 4.0
    assert [rig.write() for _ in range(3)] == [Status.DONE] * 3, "one call hangs, the store answers"
    assert len(rig.notices) == 2
    assert Verified(rig.store).look() == 1
    go_on.set()
    thread.join()
    assert answers == [Status.MISSING]
    assert rig.write() is Status.DONE
    assert len(rig.notices) == 2


def test_a_store_that_raises_has_failed(rig: Rig) -> None:
    class Broken(MemoryStore):
        def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            raise RuntimeError("a defect of the backend")

    rig = Rig(Broken())
    for _ in range(3):
        with pytest.raises(RuntimeError):
            rig.write()
    assert rig.write() is Status.FAILED
    assert rig.store.out
