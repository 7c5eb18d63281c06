"""Virtual time: a SimPy environment that counts integer nanoseconds and calls functions.

Lives here: the order and the time of events. Does not decide what happens at an event, and draws no
random numbers: the caller's function may draw the ties.

Events at the same instant run in the order (priority, tie, order of scheduling). The default tie is
0, which gives first in, first out; a random tie tries other orders. Times are integers, because
rounding of floats could change the order of two events.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, Protocol, TypeAlias

import simpy
from simpy.events import NORMAL, Event

from .errors import SimError

Tie: TypeAlias = Callable[[int], int]


def _fifo(_: int) -> int:
    return 0


class Timer(Protocol):
    """The clock that an engine uses: virtual time, or real time on a device."""

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the start of the run."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Call `action` once, `delay_ns` from now."""

    def next_ns(self) -> int:
        """Time of the next event in nanoseconds, or -1 if there is none."""


class Clock(simpy.Environment):
    """tie: returns the tie of the n-th scheduled event. scheduled: number of events so far."""

    def __init__(self, tie: Tie = _fifo) -> None:
        super().__init__(0)
        self._tie = tie
        self.scheduled = 0

    def schedule(self, event: Any, priority: Any = NORMAL, delay: Any = 0) -> None:
        """SimPy's hook; the third field of the queue's entries is (tie, number)."""
        if type(delay) is not int or delay < 0:
            raise SimError(f"clock: expected a delay in whole nanoseconds, found {delay!r}")
        number = self.scheduled
        self.scheduled = number + 1
        queue: list[Any] = self._queue
        heappush(queue, (self._now + delay, priority, (self._tie(number), number), event))

    @property
    def now_ns(self) -> int:
        return int(self._now)

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Call `action` once, `delay_ns` from now."""
        event = Event(self)
        event._ok = True
        event._value = None
        event.callbacks.append(lambda _: action())
        self.schedule(event, NORMAL, delay_ns)

    def next_ns(self) -> int:
        """Time of the next event in nanoseconds, or -1 if there is none."""
        queue = self._queue
        return int(queue[0][0]) if queue else -1
