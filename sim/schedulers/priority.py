"""Admits the request with the highest priority; between equal priorities, the earliest.

A preempted request comes first among those of its priority. A request with a low priority may wait
as long as requests with a higher one keep arriving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from .base import Scheduler, T


class Priority(Scheduler[T]):
    def __init__(self, window: int = 1) -> None:
        super().__init__(window)
        self._heap: list[tuple[int, int, T]] = []  # (-priority, turn, request)
        self._last = self._first = 0  # last turn numbers given at the end and at the front

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, request: T) -> None:
        self._last += 1
        heappush(self._heap, (-request.job.priority, self._last, request))

    def push_front(self, request: T) -> None:
        self._first -= 1
        heappush(self._heap, (-request.job.priority, self._first, request))

    def best(self, reusable: Callable[[T], int]) -> T:
        return self._heap[0][2]

    def requests(self) -> Iterable[T]:
        return (request for _, _, request in self._heap)

    def remove(self, request: T) -> None:
        heappop(self._heap)


def scheduler(window: int) -> Priority[T]:
    return Priority(window)
