"""Requests that wait for a seat: who is next.

Lives here: the queue, and the two admission orders. Must not live here: seats, budgets or the core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from hicache.core.errors import CallerError

from .sequence import Sequence

ORDERS = ("fcfs", "longest-prefix")


class WaitingQueue:
    """First come first served, or the longest reusable prefix among the first `window`.

    Only sequences within the window are ever shown, so only those need a key in memory.
    """

    def __init__(self, order: str, window: int) -> None:
        if order not in ORDERS:
            raise CallerError(f"order: expected one of {', '.join(ORDERS)}, found {order!r}")
        self._window = window if order == "longest-prefix" else 1
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def push(self, sequence: Sequence) -> None:
        self._queue.append(sequence)

    def push_front(self, sequence: Sequence) -> None:
        """For one that had a seat and lost it."""
        self._queue.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)

    def best(self, reusable: Callable[[Sequence], int]) -> Sequence:
        """Who is next; the earlier one where two can reuse as much. The queue is not empty."""
        if self._window == 1:
            return self._queue[0]
        return max(islice(self._queue, self._window), key=reusable)
