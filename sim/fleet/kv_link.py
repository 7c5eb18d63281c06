"""The network between replicas: each sends one transfer at a time, and receives one.

A transfer begins when its sender and its receiver are both free; of several that could, the one
that was asked for first. It takes the latency, and its bytes at the link's rate. Does not know
pages or requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..clock import Timer
from .options import KvLinkOptions

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Wanted:
    ends: tuple[int, int]
    bytes: int
    began: Callable[[], None]
    done: Callable[[], None]


class KvLink:
    """bytes, busy_ns: of finished transfers, by sender. transfers: how many finished."""

    def __init__(self, clock: Timer, options: KvLinkOptions) -> None:
        self._clock = clock
        self._options = options
        self._queue: list[_Wanted] = []
        self._busy: set[tuple[str, int]] = set()
        self.bytes: dict[int, int] = {}
        self.busy_ns: dict[int, int] = {}
        self.transfers = 0

    @property
    def idle(self) -> bool:
        return not self._queue and not self._busy

    def send(
        self,
        sender: int,
        receiver: int,
        count: int,
        began: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        """Queues `count` bytes. began, done: called when they begin to move, and when all have
        arrived."""
        self._queue.append(_Wanted((sender, receiver), count, began, done))
        self._begin_free()

    def lasts_ns(self, count: int) -> int:
        """Nanoseconds of a transfer, without its wait."""
        return self._options.latency_ns + -(-count * SECOND_NS // self._options.bytes_per_s)

    def _begin_free(self) -> None:
        waiting: list[_Wanted] = []
        for wanted in self._queue:
            ends = {("out", wanted.ends[0]), ("in", wanted.ends[1])}
            if ends & self._busy:
                waiting.append(wanted)
            else:
                self._busy |= ends
                self._begin(wanted)
        self._queue = waiting

    def _begin(self, wanted: _Wanted) -> None:
        wanted.began()
        self._clock.after(self.lasts_ns(wanted.bytes), lambda: self._end(wanted))

    def _end(self, wanted: _Wanted) -> None:
        sender, receiver = wanted.ends
        self._busy -= {("out", sender), ("in", receiver)}
        self.bytes[sender] = self.bytes.get(sender, 0) + wanted.bytes
        self.busy_ns[sender] = self.busy_ns.get(sender, 0) + self.lasts_ns(wanted.bytes)
        self.transfers += 1
        wanted.done()
        self._begin_free()
