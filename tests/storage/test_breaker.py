"""A store that is dead, hangs or refuses: few calls, one notice for each change, and a way back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict

import pytest

from hicache.storage.base import Status, Value, tell
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.verified import Verified
from tests.storage.memory_store import MemoryStore

OPTIONS = BreakerOptions(
    failures=3, patience_s=0.9, slow_s=2.0, first_pause_s=1.0, longest_pause_s=4.0
)


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class Refusing(MemoryStore):
    """A store that takes no writes as long as `refuses` says so."""

    refuses: Status | None = None

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        if self.refuses is None:
            return super().write(keys, values)
        self.calls += 1
        tell("NOREPLICAS Not enough good replicas to write.")
        return [self.refuses for _ in keys]


class Rig:
    """A breaker whose probes run at once."""

    def __init__(self, medium: MemoryStore | None = None) -> None:
        self.medium = medium or MemoryStore()
        self.clock = Clock()
        self.notices: list[str] = []
        self.store = Breaker(
            self.medium, "file:x", self.clock, self.notices.append, OPTIONS, lambda job: job()
        )

    def write(self) -> Status:
        return self.store.write(["key"], [(memoryview(b"v"),)])[0]

    def read(self) -> Status:
        return self.store.read(["key"], [(memoryview(bytearray(1)),)])[0]

    def kill(self) -> None:
        self.medium.answer = Status.FAILED

    def revive(self) -> None:
        self.medium.answer = None


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_dead_store_is_one_change_whoever_finds_it_out(rig: Rig) -> None:
    """Writes fail first: a look-up shows that it does not answer at all."""
    rig.kill()
    for _ in range(100):
        assert rig.write() is Status.FAILED
        assert rig.store.lookup(["key"]) == [None]
    assert len(rig.notices) == 1
    assert "file:x does not answer (" in rig.notices[0]
    assert rig.store.losses.writes_refused == rig.store.losses.lookups_unanswered == 100
    assert (rig.store.losses.outages, rig.store.losses.write_outages) == (1, 0)


@pytest.mark.parametrize("refusal", [Status.FAILED, Status.FULL])
def test_a_store_that_takes_no_writes_goes_on_serving_reads(refusal: Status) -> None:
    rig = Rig(medium := Refusing())
    assert rig.write() is Status.DONE
    medium.refuses = refusal
    for tenth in range(200):
        rig.clock.s = tenth / 10
        assert rig.write() in (refusal, Status.FAILED)
        assert rig.store.lookup(["key", "none"]) == [True, False]
        assert rig.read() is Status.DONE
    assert rig.notices == [
        "storage: file:x takes no writes (NOREPLICAS Not enough good replicas to write); what it "
        "has is read, and new pages are not kept"
    ]
    assert medium.calls == 1 + 400 + 1 + 3 + 6, "and one look-up that showed that it answers"
    assert rig.store.losses.writes_refused == 200
    assert rig.store.losses.write_outages == 1
    assert not rig.store.out
    medium.refuses = None
    rig.clock.s += 4.0
    assert rig.write() is Status.DONE
    assert rig.notices[1:] == ["storage: file:x takes writes again, after 23.7 s"]


def test_reads_that_fail_are_noticed_although_look_ups_are_answered() -> None:
    """As where one process knows the keys and another one, which is dead, has the values."""

    class Forgetful(MemoryStore):
        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            self.calls += 1
            return [Status.FAILED for _ in keys]

    rig = Rig(Forgetful())
    rig.write()
    for _ in range(10):
        assert rig.store.lookup(["key"]) in ([True], [None])
        rig.read()
    rig.clock.s = 1.0
    assert rig.store.lookup(["key"]) == [None], "the probe reads, and that fails as before"
    assert len(rig.notices) == 1


def test_a_call_that_hangs_puts_the_store_out_for_the_others() -> None:
    class Hanging(MemoryStore):
        hung = False

        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            if not self.hung:
                self.hung = True
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
    rig.clock.s = 2.0
    assert Verified(rig.store).poll() == 0
    assert rig.notices == [], "at the limit it is in time"
    rig.clock.s = 2.1
    assert Verified(rig.store).poll() == 0
    assert len(rig.notices) == 1, "although nobody calls it"
    assert rig.write() is Status.FAILED
    assert "a call has taken more than 2 s" in rig.notices[0]
    rig.clock.s = 4.0
    assert [rig.write() for _ in range(3)] == [Status.DONE] * 3, "one call hangs, the store answers"
    assert len(rig.notices) == 2
    assert Verified(rig.store).poll() == 1
    go_on.set()
    thread.join()
    assert answers == [Status.MISSING]
    assert rig.write() is Status.DONE
    assert len(rig.notices) == 2
    assert rig.store.losses.late == 1
    assert rig.store.losses.reads_failed == 1, "it was given up, and is not counted twice"


def test_a_store_that_raises_has_failed(rig: Rig) -> None:
    class Broken(MemoryStore):
        def lookup(self, keys: Sequence[str]) -> list[bool | None]:
            raise RuntimeError("a defect of the backend")

    rig = Rig(Broken())
    for _ in range(3):
        with pytest.raises(RuntimeError):
            rig.store.lookup(["key"])
    assert rig.store.lookup(["key"]) == [None]
    assert rig.store.out
    rig.clock.s = 1.0
    assert rig.store.lookup(["key"]) == [None], "its probe raises too"


def test_a_delete_reaches_a_store_that_takes_no_writes() -> None:
    """A full store needs it."""
    rig = Rig(medium := Refusing())
    rig.write()
    medium.refuses = Status.FULL
    for _ in range(5):
        rig.write()
    assert rig.store.delete(["key", "none"]) == [Status.DONE, Status.MISSING]


def test_closing_is_no_outage(rig: Rig) -> None:
    rig.store.close()
    rig.kill()
    for _ in range(9):
        rig.read()
        rig.write()
    assert rig.notices == []
    assert asdict(rig.store.losses) | {"reads_failed": 0, "writes_refused": 0} == asdict(
        rig.store.losses.__class__()
    )


def test_nobody_waits_for_a_probe() -> None:
    rig = Rig()
    jobs: list[Callable[[], None]] = []
    store = Breaker(rig.medium, "x", rig.clock, rig.notices.append, OPTIONS, jobs.append)
    rig.kill()
    for _ in range(3):
        store.lookup(["key"])
    rig.revive()
    rig.clock.s = 1.0
    calls = rig.medium.calls
    for _ in range(20):
        assert store.lookup(["key"]) == [None]
    assert rig.medium.calls == calls
    assert len(jobs) == 1
    jobs.pop()()
    assert store.lookup(["key"]) == [False]
    assert [one.split(" after")[0] for one in rig.notices[1:]] == ["storage: x answers again,"]


def test_a_store_that_flaps_is_asked_ever_more_rarely(rig: Rig) -> None:
    waited = []
    for outage in range(1, 6):
        rig.kill()
        for _ in range(10):
            rig.read()
        rig.revive()
        began = rig.clock.s
        while rig.read() is Status.FAILED:
            rig.clock.s += 0.5
        waited.append(rig.clock.s - began)
        assert len(rig.notices) == 2 * outage
        assert rig.notices[-1] == f"storage: file:x answers again, after {waited[-1]:.1f} s"
    assert waited == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert rig.store.stats()["outages"] == 5
    rig.clock.s += 4.5
    rig.kill()
    for _ in range(10):
        rig.read()
    rig.clock.s += 1.0
    rig.revive()
    assert rig.read() is Status.MISSING, "it had stayed for a while, so the pause is short again"


def test_slow_calls_are_failures(rig: Rig) -> None:
    class Slow(MemoryStore):
        def lookup(self, keys: Sequence[str]) -> list[bool | None]:
            clock.s += 2.1
            return [False for _ in keys]

    rig = Rig(Slow())
    clock = rig.clock
    for _ in range(10):
        rig.store.lookup(["key"])
    assert rig.store.out
    assert "a call has taken more than 2 s" in rig.notices[0]
    assert len(rig.notices) == 1


@pytest.mark.parametrize("well", [False, True])
def test_a_store_may_go_out_while_a_write_shows_whether_it_takes_writes_again(well: bool) -> None:
    """The answer to that write is what the store said, and changes nothing."""
    rig = Rig(medium := Refusing())
    medium.refuses = Status.FAILED
    for _ in range(3):
        rig.write()
    rig.clock.s += 4.0
    real = medium.write

    def write(keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        medium.refuses = None if well else Status.FAILED
        found = real(keys, values)
        rig.kill()
        for _ in range(3):
            rig.read()
        return found

    medium.write = write  # type: ignore[method-assign]
    assert rig.write() is (Status.DONE if well else Status.FAILED)
    assert rig.store.out
    assert ["takes no writes" in rig.notices[0], "does not answer" in rig.notices[1]] == [True] * 2
    medium.write = real  # type: ignore[method-assign]
    medium.refuses = None
    rig.revive()
    rig.clock.s += 4.0
    assert rig.store.lookup(["key"]) == [well]
    assert rig.write() is Status.DONE
    assert len(rig.notices) == 3


def test_a_store_that_is_back_may_fail_as_often_as_before(rig: Rig) -> None:
    rig.write()
    rig.kill()
    for _ in range(3):
        rig.store.lookup(["key"])
    assert rig.store.out
    rig.revive()
    rig.clock.s += 1.1
    rig.store.poll()
    rig.kill()
    rig.store.lookup(["key"])
    assert not rig.store.out
