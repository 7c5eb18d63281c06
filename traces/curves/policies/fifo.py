"""FIFO: the page that was inserted first goes first, however often it was used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

SUMMARY = "the page that was inserted first goes first"


class Fifo:
    def __init__(self, capacity: int) -> None:
        self.resident: set[int] = set()
        self._capacity = capacity
        self._queue: deque[int] = deque()

    def use(self, pages: Iterable[int]) -> None:
        resident, queue, capacity = self.resident, self._queue, self._capacity
        for page in pages:
            if page not in resident:
                if len(queue) == capacity:
                    resident.remove(queue.popleft())
                queue.append(page)
                resident.add(page)


def make(capacity: int) -> Fifo:
    return Fifo(capacity)
