"""Virtual time: a SimPy environment that counts integer nanoseconds and calls functions; and one
replica's view of a clock that several share.
"""

import gc
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

import simpy
from simpy.events import NORMAL, Event

from .errors import SimError


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
    """Events at the same instant run in the order in which they were scheduled. Times are integers,
    because rounding of floats could change the order of two events."""

    def __init__(self) -> None:
        super().__init__(0)

    @property
    def now_ns(self) -> int:
        return int(self._now)

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        if type(delay_ns) is not int or delay_ns < 0:
            raise SimError(f"clock: expected a delay in whole nanoseconds, found {delay_ns!r}")
        event = Event(self)
        event._ok = True
        event._value = None
        event.callbacks.append(lambda _: action())
        self.schedule(event, NORMAL, delay_ns)

    def next_ns(self) -> int:
        queue = self._queue
        return int(queue[0][0]) if queue else -1

    def finish(self) -> None:
        """Runs all events."""
        collecting = gc.isenabled()
        gc.disable()  # reference counting is enough; a collection would scan the whole tree
        try:
            while self.next_ns() >= 0:
                self.step()
        finally:
            if collecting:
                gc.enable()


class SharedClock(Clock):
    """name: of the replica; "" for another user of the clock. outside: time of the next event of
    others that may concern this replica, -1 for none. An engine decodes in one stretch until then.
    """

    def __init__(self, shared: Clock, name: str, outside: Callable[[], int]) -> None:
        super().__init__()
        self._shared = shared
        self._name = name
        self._outside = outside
        self._times: list[int] = []  # of its own events

    @property
    def now_ns(self) -> int:
        return self._shared.now_ns

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        heappush(self._times, self._shared.now_ns + delay_ns)
        self._shared.after(delay_ns, lambda: self._run(action))

    @property
    def own_next_ns(self) -> int:
        """Time of its own next event, -1 for none."""
        return self._times[0] if self._times else -1

    def next_ns(self) -> int:
        return earliest(self.own_next_ns, self._outside())

    def step(self) -> None:
        self._shared.step()

    def _run(self, action: Callable[[], None]) -> None:
        heappop(self._times)  # events run in order, so it is the time of this one
        try:
            action()
        except Exception as error:
            if self._name:
                error.add_note(f"replica: {self._name}")
            raise


def earliest(*times_ns: int) -> int:
    """The first of these times; -1 stands for none."""
    return min((time_ns for time_ns in times_ns if time_ns >= 0), default=-1)
