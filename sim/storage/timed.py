"""An executor of storage in virtual time: two pipes, the latency of a batch, and what goes wrong.

A lookup and a delete take the latency of the store. A fetch and a store move their values through
the pipe of their direction; a value is read when it has moved, and written when its batch has
moved. `abandon` ends a lookup at once with nothing, and a fetch or store with what has moved. A
store that hangs answers only what is abandoned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from hicache.core.actions import Delete, Fetch, Lookup, Piece, StorageAction, Store
from hicache.core.types import FlightId

from ..clock import Timer
from ..keyed_draw import draw
from .contents import Contents, Medium
from .executor import StoreExecutor
from .options import MILLION, StoreOptions
from .page_bytes import PageBytes

_SECOND_NS = 1_000_000_000
Ended: TypeAlias = Callable[[int], None]


@dataclass(slots=True, eq=False)
class _Batch:
    """ends: bytes up to the end of each value. factor: how many times as long it takes."""

    flight: FlightId
    ends: list[int]
    ready_ns: int
    factor: int
    ended: Ended
    began_ns: int = -1
    over: bool = False


class Pipe:
    """One direction between a store and host memory: batches, one after the other, in virtual time.

    The bytes of a batch begin to move `latency_ns` after it was sent, or when the batch before it
    has moved, whichever is later. All batches together move at the rate of the direction. A batch
    that is cut short ends at once with the values that have moved whole.

    bytes, busy_ns: of the batches that ended, and of what had moved of those
    that were cut.
    """

    def __init__(self, clock: Timer, bytes_per_s: int, latency_ns: int) -> None:
        self._clock = clock
        self._rate = bytes_per_s
        self._latency_ns = latency_ns
        self._queue: deque[_Batch] = deque()
        self._current: _Batch | None = None
        self.bytes = 0
        self.busy_ns = 0

    def send(self, flight: FlightId, sizes: Sequence[int], ended: Ended, factor: int = 1) -> None:
        """Queues a batch of values. ended: called with the number of values that have moved."""
        ready_ns = self._clock.now_ns + self._latency_ns * factor
        batch = _Batch(flight, list(accumulate(sizes)), ready_ns, factor, ended)
        self._queue.append(batch)
        if self._current is None:
            self._next()

    def cut(self, flight: FlightId) -> bool:
        """Ends a batch now. False if it is not here."""
        batch = self._current
        if batch is not None and batch.flight == flight:
            self._end(batch, self.moved(flight))
            return True
        for batch in self._queue:
            if batch.flight == flight:
                self._queue.remove(batch)
                batch.ended(0)
                return True
        return False

    def moved(self, flight: FlightId) -> int:
        """How many values of a batch have moved by now."""
        batch = self._current
        if batch is None or batch.flight != flight or self._clock.now_ns < batch.began_ns:
            return 0
        elapsed_ns = self._clock.now_ns - batch.began_ns
        reached = elapsed_ns * self._rate // (_SECOND_NS * batch.factor)
        return sum(end <= reached for end in batch.ends)

    def is_moving(self, flight: FlightId) -> bool:
        """Whether the first byte of a batch has begun to move, and the last one has not."""
        batch = self._current
        began = batch is not None and self._clock.now_ns >= batch.began_ns
        return began and batch is not None and batch.flight == flight

    def _next(self) -> None:
        if not self._queue:
            return
        batch = self._current = self._queue.popleft()
        batch.began_ns = max(self._clock.now_ns, batch.ready_ns)
        total = batch.ends[-1] if batch.ends else 0
        lasts_ns = -(-total * _SECOND_NS * batch.factor // self._rate)
        wait_ns = batch.began_ns + lasts_ns - self._clock.now_ns
        self._clock.after(wait_ns, lambda: self._end(batch, len(batch.ends)))

    def _end(self, batch: _Batch, values: int) -> None:
        if batch.over:
            return
        batch.over = True  # its planned end, if that comes later, finds it ended
        self.bytes += batch.ends[values - 1] if values else 0
        self.busy_ns += max(0, self._clock.now_ns - batch.began_ns)
        self._current = None
        self._next()
        batch.ended(values)


_SLOWER = 10


class TimedStore(StoreExecutor):
    """See the module. value_bytes: of one value, by component."""

    def __init__(
        self,
        clock: Timer,
        options: StoreOptions,
        contents: Contents,
        value_bytes: Mapping[str, int],
        page_bytes: PageBytes,
    ) -> None:
        super().__init__(contents, tuple(value_bytes), page_bytes)
        self._clock = clock
        self._options = options
        self._value_bytes = value_bytes
        self.reads = Pipe(clock, options.read_bytes_per_s, options.latency_ns)
        self.writes = Pipe(clock, options.write_bytes_per_s, options.latency_ns)
        self._hung: dict[FlightId, StorageAction] = {}
        self._batches = 0

    def submit(self, action: StorageAction) -> None:
        super().submit(action)
        factor = self._factor()
        if type(action) is Fetch or type(action) is Store:
            pipe = self.reads if type(action) is Fetch else self.writes
            pipe.send(action.flight, self._sizes(action.pieces), self._mover(action), factor)
        else:
            self._clock.after(self._options.latency_ns * factor, lambda: self._asked(action))

    def abandon(self, flight: FlightId) -> None:
        action = self._open.get(flight)
        if action is None or type(action) is Delete:
            return
        if self._hung.pop(flight, None) is not None:
            self._lose(action)
        elif type(action) is Lookup:
            self._fail(action)
        elif not self.reads.cut(flight):
            self.writes.cut(flight)

    def crash(self, medium: Medium) -> None:
        """Writes what has moved of the stores under way, without syncing it, and tears the value
        that is moving. medium: what this store keeps its values on."""
        for action in list(self._open.values()):
            if type(action) is not Store:
                continue
            moved = self.writes.moved(action.flight)
            names = [(piece.component, one) for piece in action.pieces for one in piece.digests]
            for name in names[:moved]:
                medium.put(name)
            if moved < len(names) and self.writes.is_moving(action.flight):
                medium.put(names[moved], whole=False)

    def _factor(self) -> int:
        """How many times as long this batch takes."""
        if not self._options.slow:
            return 1
        self._batches += 1
        slow = draw(MILLION, self._options.seed, "slow", self._batches) < self._options.slow
        return _SLOWER if slow else 1

    def _sizes(self, pieces: Sequence[Piece]) -> list[int]:
        return [self._value_bytes[piece.component] for piece in pieces for _ in piece.digests]

    def _mover(self, action: Fetch | Store) -> Callable[[int], None]:
        def ended(values: int) -> None:
            if self._answers(action):
                if type(action) is Fetch:
                    self._fetched(action, values)
                elif type(action) is Store:
                    self._stored(action, values)

        return ended

    def _asked(self, action: StorageAction) -> None:
        if action.flight in self._open and self._answers(action):
            if type(action) is Lookup:
                self._looked_up(action)
            elif type(action) is Delete:
                self._deleted(action)

    def _answers(self, action: StorageAction) -> bool:
        """Whether the store is there. If it is dead, the action fails; if it hangs, it waits."""
        now_ns = self._clock.now_ns
        if self._options.hangs(now_ns):
            self._hung[action.flight] = action
            if self._options.back_at_ns > now_ns:
                self._clock.after(self._options.back_at_ns - now_ns, lambda: self._woken(action))
            return False
        if self._options.is_dead(now_ns):
            self._lose(action)
            return False
        return True

    def _woken(self, action: StorageAction) -> None:
        if self._hung.pop(action.flight, None) is not None:
            self._lose(action)
