"""The executor of one rank of a replay: what was started has ended on all ranks at the next poll.

    start    copies and actions for storage begin, on the threads of the device and of the store
    poll     wait until all of them have ended here (`moving`), agree once with the other ranks on
             their replies (`agreeing`), and return these in the order of the submissions, those of
             storage last

So replies come as they do without a device: the cores decide what a single process decides. It
takes the time of both parts of each exchange, and counts its collectives. Does not move bytes, and
does not know how ranks reach each other (hicache/runtime/agreement, group).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hicache.core.actions import Backup, Fetch, Load, Outcome, StorageAction, Store, Transfer
from hicache.core.events import Event, Reply
from hicache.core.types import FlightId
from hicache.core.view import CoreView
from hicache.runtime.agreement import Agreement
from hicache.runtime.decisions import Decisions
from hicache.runtime.driver import Executor
from hicache.runtime.gloo_group import GlooGroup
from sim.errors import StuckError

_PAUSE_S = 100e-6


class Exchange(NamedTuple):
    """One poll with replies: seconds that its work took here, and those of the agreement on it,
    with its waits for slower ranks; and of both the time of processors. collectives: it took."""

    moving_s: float
    agreeing_s: float
    collectives: int
    moving_cpu_s: float
    agreeing_cpu_s: float


class Together:
    """See the module. It also observes the driver: decisions are compared at each exchange.

    exchanges: so far. moved: bytes by what moved them, as far as a reply stands for them.
    """

    def __init__(
        self,
        executor: Executor,
        group: GlooGroup,
        value_bytes: dict[str, int],
        wait_s: float,
        tell: Callable[[int, int, str], None],
    ) -> None:
        """value_bytes: of a page of each component in storage. wait_s: the longest time of an
        exchange here. tell: called before each agreement with the number of the exchange, the
        events so far and the digest of their decisions."""
        self._decisions = Decisions()
        self._agreement = Agreement(executor, group, self._decisions)
        self._group, self._value_bytes = group, value_bytes
        self._wait_s, self._tell = wait_s, tell
        self._actions: dict[FlightId, Transfer | StorageAction] = {}  # not answered, in order
        self._running: dict[FlightId, None] = {}
        self._began = (0.0, 0.0)
        self.exchanges: list[Exchange] = []
        self.moved: Counter[str] = Counter()

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: only outcomes are decisions."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self._decisions.add(outcomes)

    def submit(self, action: Transfer | StorageAction) -> None:
        self._actions[action.flight] = action
        self._agreement.submit(action)

    def abandon(self, flight: FlightId) -> None:
        """Does nothing: all actions end before the next poll returns."""

    def start(self) -> None:
        self._began = _now()
        self._running = dict.fromkeys(self._actions)
        self._agreement.start()

    def poll(self) -> list[Reply]:
        """Raises StuckError for work that does not end in time, and what `Agreement.poll` does."""
        if not self._running:
            return []
        self._end_here()
        before, moved = self._group.entered, _now()
        self._tell(len(self.exchanges), self._decisions.events, self._decisions.short())
        replies = {reply.flight: reply for reply in self._agreement.poll()}
        (wall, cpu), (began, began_cpu), (agreed, agreed_cpu) = moved, self._began, _now()
        entered = self._group.entered - before
        self.exchanges.append(
            Exchange(wall - began, agreed - wall, entered, cpu - began_cpu, agreed_cpu - cpu)
        )
        answered = [(flight, self._actions.pop(flight)) for flight in self._running]
        answered.sort(key=lambda one: not isinstance(one[1], Load | Backup))  # stable
        self._running = {}
        return [replies[flight] for flight, _ in answered]

    def _end_here(self) -> None:
        """Wait until everything that was started has ended on this rank."""
        executor, running = self._agreement.executor, dict(self._running)
        while True:
            for reply in executor.poll():
                running.pop(reply.flight, None)
                self._count(reply)
                self._agreement.end(reply)
            if not running:
                return
            if time.perf_counter() - self._began[0] > self._wait_s:
                raise StuckError(
                    f"exchange {len(self.exchanges)}: expected all actions to end within "
                    f"{self._wait_s:g} s, found {len(running)} that did not"
                )
            time.sleep(_PAUSE_S)

    def _count(self, reply: Reply) -> None:
        """Note the bytes that moved to and from storage."""
        action = self._actions[reply.flight]
        if isinstance(action, Fetch):
            end = action.first_page + int(reply[1])
            for piece in action.pieces:
                pages = max(0, min(len(piece.digests), end - piece.first_page))
                self.moved["read"] += pages * self._value_bytes[piece.component]
        elif isinstance(action, Store):
            left = int(reply[1])
            for piece in action.pieces:
                pages = min(left, len(piece.digests))
                self.moved["written"] += pages * self._value_bytes[piece.component]
                left -= pages


def _now() -> tuple[float, float]:
    """Seconds of the wall clock, and of the processors that this process had."""
    return time.perf_counter(), time.process_time()
