"""One replica's view of the clock that all replicas share.

Lives here: which of the shared clock's events a replica may have to react to, and the name of the
replica in an error that one of its events raises. Does not order events (see clock).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from ..clock import Clock


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
