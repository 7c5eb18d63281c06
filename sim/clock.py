"""Virtual time: a SimPy environment in integer nanoseconds, driven by callbacks.

Lives here: when things happen and in which order within one instant. Must not live here: what
happens, or any draw of its own (ties are drawn by the caller's function, if at all).

Events of one instant run in the order (priority, tie, order of scheduling). With the default tie of
0 that is first in, first out; a drawn tie explores the other orders. The clock counts integers
only: a float would make the order of two events depend on rounding.
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
    """What an engine asks of time, be it virtual or the wall's."""

    @property
    def now_ns(self) -> int:
        """Since the start of the run."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Call `action` once, `delay_ns` from now."""

    def next_ns(self) -> int:
        """When the next event is due; -1 when there is none."""


class Clock(simpy.Environment):
    """tie: from the number of a scheduled event to its tie. scheduled: events so far."""

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
        """When the next event is due; -1 when there is none."""
        queue = self._queue
        return int(queue[0][0]) if queue else -1
