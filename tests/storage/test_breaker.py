"""A store that is dead, hangs or refuses: few calls, one notice for each change, and a way back.
The laws of outages hold in drawn histories."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from hicache.storage.base import Status, Value, step, tell
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.checksummed import Checksummed
from tests.storage.memory_store import MemoryStore
from tests.storage.outages.laws import Clock, play_many

OPTIONS = BreakerOptions(
    failures=3, patience_s=0.9, slow_s=2.0, first_pause_s=1.0, longest_pause_s=4.0
)


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


def test_a_failure_costs_the_time_since_bytes_last_moved() -> None:
    class Long(MemoryStore):
        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            rig.clock.s += 10 * OPTIONS.patience_s
            step()
            return [Status.FAILED for _ in keys]

    rig = Rig(Long())
    assert rig.read() is Status.FAILED
    assert not rig.store.out


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
    assert Checksummed(rig.store).poll() == 0
    assert rig.notices == [], "at the limit it is in time"
    rig.clock.s = 2.1
    assert Checksummed(rig.store).poll() == 0
    assert len(rig.notices) == 1, "although nobody calls it"
    assert rig.write() is Status.FAILED
    assert "a call has taken more than 2 s" in rig.notices[0]
    rig.clock.s = 4.0
    assert [rig.write() for _ in range(3)] == [Status.DONE] * 3, "one call hangs, the store answers"
    assert len(rig.notices) == 2
    assert Checksummed(rig.store).poll() == 1
    go_on.set()
    thread.join()
    assert answers == [Status.MISSING]
    assert rig.write() is Status.DONE
    assert len(rig.notices) == 2
    assert rig.store.losses.late == 1
    assert rig.store.losses.reads_failed == 1, "it was given up, and is not counted twice"


@pytest.mark.parametrize(("failures", "took_s"), [(3, 0.25), (2, 0.5), (1, 1.0)])
def test_it_is_out_with_the_call_that_makes_too_many_failures_or_waits_too_long(
    failures: int, took_s: float
) -> None:
    """In a row, and of one kind: an answer begins anew."""

    class Slow(MemoryStore):
        def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
            rig.clock.s += took_s
            return super().read(keys, values)

    rig = Rig(Slow())
    for _ in range(3):
        for _ in range(failures - 1):
            rig.kill()
            assert rig.read() is Status.FAILED
            assert rig.store.lookup(["key"]) == [None]
        rig.revive()
        rig.read()
        rig.store.lookup(["key"])
    rig.kill()
    for _ in range(failures):
        assert not rig.store.out
        rig.read()
    assert rig.store.out
    assert rig.store.losses.waited_s == pytest.approx((4 * failures - 3) * took_s)


def test_a_store_that_raises_has_failed() -> None:
    class Broken(MemoryStore):
        def lookup(self, keys: Sequence[str]) -> list[bool | None]:
            raise RuntimeError("a defect of the backend")

    rig = Rig(Broken())
    for _ in range(3):
        assert rig.store.lookup(["key"]) == [None]
    assert rig.store.out
    assert "a defect of the backend" in rig.notices[0]
    rig.clock.s = 1.0
    assert rig.store.lookup(["key"]) == [None], "its probe raises too"


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
    assert rig.store.losses.outages == 5
    rig.clock.s += 4.5
    rig.kill()
    for _ in range(10):
        rig.read()
    rig.clock.s += 1.0
    rig.revive()
    assert rig.read() is Status.MISSING, "it had stayed for a while, so the pause is short again"


def test_no_loss_is_silent_and_no_notice_is_needless() -> None:
    met = play_many(100, 1)
    assert min(met["outages"], met["write_outages"]) > 3, met
    assert met["lookups_unanswered"] > 500
