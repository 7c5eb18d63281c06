"""Admits the request with the longest cached prefix, among the first `window` of the queue.

Between equal prefixes the earlier request is admitted. A request without a cached prefix may wait
as long as requests with one keep arriving.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from .base import Scheduler, T


class LongestPrefix(Scheduler[T]):
    def best(self, reusable: Callable[[T], int]) -> T:
        if self.window == 1:
            return self.queue[0]
        return max(islice(self.queue, self.window), key=reusable)


def scheduler(window: int) -> LongestPrefix[T]:
    return LongestPrefix(window)
