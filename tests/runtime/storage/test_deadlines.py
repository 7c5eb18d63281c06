"""Calls with drawn durations on a virtual clock: answers before, at and after a deadline.

Threads are real, and wait inside of the store until the test lets a call return. Between two
moments nothing moves, so what is checked depends on the drawn durations alone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from hicache.core.actions import Fetch, Lookup, StorageAction, Store
from hicache.core.events import StorageReply
from hicache.core.types import FlightId
from hicache.storage.base import Status, Value
from hicache.storage.breaker import Breaker
from tests.storage.memory_store import MemoryStore

from .rig import DIGESTS, PATIENCE_S, SMALL, Bench, bench, piece, until

CALL_S = 4.0
LATEST_S = 13.0
DURATIONS_S = (0.0, 0.0, 1.0, 3.75, 4.0, 4.25, LATEST_S)
OPTIONS = replace(SMALL, call_s=CALL_S, batch_bytes=120)
PAGES = 3  # of each action
STALE = 0xEE


@dataclass(eq=False)
class Held:
    """A call under way. overdue: the deadline was seen to pass."""

    began_s: float
    ends_s: float
    overdue: bool = False
    go: threading.Event = field(default_factory=threading.Event)


class Paced(MemoryStore):
    """A store whose calls return when the test says so."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.clock: Callable[[], float] | None = None  # None: calls return at once
        self.held: list[Held] = []
        self.in_time = True  # no call has taken too long so far
        self.late = self.long = 0  # calls that were seen to be overdue and returned; that took long

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        self._pass("lookup", keys)
        return super().lookup(keys)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self._pass("read", keys)
        return super().read(keys, values)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self._pass("write", keys)
        return super().write(keys, values)

    def _pass(self, kind: str, keys: Sequence[str]) -> None:
        if self.clock is not None:
            lasts_s = random.Random(f"{self.seed}/{kind}/{keys}").choice(DURATIONS_S)
            call = Held(self.clock(), self.clock() + lasts_s)
            self.held.append(call)
            assert call.go.wait(PATIENCE_S)


class Play:
    """One drawn run."""

    def __init__(self, seed: int, one: Bench, store: Paced) -> None:
        self.draw, self.one, self.store = random.Random(seed), one, store
        self.answers: dict[FlightId, StorageReply] = {}
        self.abandoned: set[FlightId] = set()
        self.actions: dict[FlightId, StorageAction] = {}
        self.given_up: set[FlightId] = set()

    def run(self) -> None:
        assert self.one.store_path(9).pages == 12  # type: ignore[union-attr]
        self.one.idle()
        self.store.clock = self.one.clock
        for flight in range(10, 10 + self.draw.randint(1, 5)):
            self.actions[flight] = self._action(flight)
        self.one.workers.begin([*self.actions.values()])
        while not self._ended():
            self._quiet()
            self._advance()
        self._quiet()
        assert not self.one.workers.poll(), "each was answered once"
        assert set(self.answers) == set(self.actions)

    def _action(self, flight: FlightId) -> StorageAction:
        at = 9 + PAGES * (flight - 10)
        first = self.draw.randint(0, 6)
        kind = self.draw.choice(["lookup", "fetch", "fetch", "store"])
        if kind == "lookup":
            return Lookup(flight, 0, 0, DIGESTS[: self.draw.randint(1, 9)], 0, (0, 0, 0))
        if kind == "fetch":
            return Fetch(flight, 0, first, (piece("full", first, at, at + 1, at + 2),), PAGES)
        return Store(flight, (piece("full", 12 - PAGES + flight % 2 * PAGES, *range(PAGES)),))

    def _ended(self) -> bool:
        return len(self.answers) == len(self.actions) and not self.store.held

    def _quiet(self) -> None:
        """Wait until every thread is inside of the store, or has nothing to do."""
        workers = self.one.workers

        def still() -> bool:
            with workers.changed:
                running = [task for lane in workers._lanes for task in lane.running]
                free = any(
                    len(lane.running) < lane.threads and workers._may_begin(lane)
                    for lane in workers._lanes
                )
                return not free and len(running) == len(self.store.held)

        until(still)

    def _advance(self) -> None:
        """Go on to the next moment at which something happens, and let it happen."""
        now = self.one.clock.now
        moments = [call.ends_s for call in self.store.held]
        moments += [call.began_s + CALL_S for call in self.store.held]
        moments += [call.began_s + CALL_S + 0.25 for call in self.store.held]
        self.one.clock.now = min((one for one in moments if one > now), default=now)
        if self.draw.random() < 0.1:
            flight = self.draw.choice([*self.actions])
            self.abandoned.add(flight)
            self.one.workers.abandon(flight)
        for step in self.draw.sample([self._poll, self._return], 2):
            step()
            self._quiet()
        self._poll()

    def _return(self) -> None:
        for call in [one for one in self.store.held if one.ends_s <= self.one.clock.now]:
            self.store.late += call.overdue
            if self.one.clock.now - call.began_s > CALL_S:
                self.store.in_time = False
                self.store.long += 1
            self.store.held.remove(call)
            call.go.set()

    def _poll(self) -> None:
        now = self.one.clock.now
        for call in self.store.held:
            if now - call.began_s > CALL_S and not call.overdue:
                call.overdue = True
                self.store.in_time = False
        with self.one.workers.changed:
            open_before = dict(self.one.workers._open)
            under_way = {one for one, task in open_before.items() if task.called_s is not None}
            in_place = {one for one, task in open_before.items() if task.touching}
            began = {one: task.called_s for one, task in open_before.items()}
        for reply in self.one.workers.poll():
            flight = reply.flight
            assert flight not in self.answers, "answered twice"
            self.answers[flight] = reply
            assert flight not in in_place, "the store still works in its pages"
            if flight in under_way:
                self.given_up.add(flight)
                started = began[flight]
                assert started is not None
                assert now - started > CALL_S, "given up in time"
            self._check(reply)
        with self.one.workers.changed:
            for task in self.one.workers._open.values():
                assert task.touching or task.called_s is None or now - task.called_s <= CALL_S

    def _check(self, reply: StorageReply) -> None:
        """What the answer says is there, and the rest may be used for something else."""
        action = self.actions[reply.flight]
        whole = reply.flight not in self.given_up | self.abandoned
        done = reply[1]
        if type(action) is Fetch:
            depth = action.first_page
            [found] = action.pieces
            for number in range(int(done)):
                page = int(found.pages[number])
                assert self.one.page("full", page) == self.one.page("full", depth + number)
            for page in found.pages.tolist():
                for pool in self.one.pages._places["full"]:
                    pool.pool.load(page, memoryview(bytes([STALE]) * pool.pool.page_bytes))
        if whole and self.store.in_time:
            wanted = len(action.digests) if type(action) is Lookup else PAGES
            assert done == wanted, "every call was in time"

    def stale(self) -> None:
        """Nobody wrote into pages after their action was answered."""
        for action in self.actions.values():
            if type(action) is Fetch:
                for page in action.pieces[0].pages.tolist():
                    for place in self.one.pages._places["full"]:
                        content = bytearray(place.pool.page_bytes)
                        place.pool.save(page, memoryview(content))
                        assert set(content) == {STALE}


@pytest.mark.parametrize("guarded", [False, True], ids=["bare", "guarded"])
@pytest.mark.parametrize("seed", range(25))
def test_each_action_is_answered_once_and_at_its_deadline(seed: int, guarded: bool) -> None:
    store = Paced(seed)
    with bench(store, options=OPTIONS, guarded=guarded, layout="page_first_direct") as one:
        used = one.workers.store
        if isinstance(used, Breaker):
            used._start = lambda job: None  # its probes would come on a thread of their own
        play = Play(seed, one, store)
        play.run()
        play.stale()
        assert isinstance(used, Breaker) is guarded
        if guarded:  # a call that begins also sees that others are overdue
            assert store.late <= used.losses.late <= store.long, "late answers are counted"
