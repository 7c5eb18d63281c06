"""First come, first served. A preempted request goes to the front of the queue."""

from __future__ import annotations

from collections.abc import Callable

from .base import Scheduler, T


class Fcfs(Scheduler[T]):
    def best(self, reusable: Callable[[T], int]) -> T:
        return self.queue[0]


def scheduler(window: int) -> Fcfs[T]:
    return Fcfs(window)
