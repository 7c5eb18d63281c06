"""One direction between a store and host memory: batches, one after the other, in virtual time.

The bytes of a batch begin to move `latency_ns` after it was sent, or when the batch before it has
moved, whichever is later. All batches together move at the rate of the direction. A batch that is
cut short ends at once with the values that have moved whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from hicache.core.types import FlightId

from ..clock import Timer

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
    """See the module. bytes, busy_ns: of the batches that ended, and of what had moved of those
    that were cut."""

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
