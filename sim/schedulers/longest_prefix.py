"""The request with the longest cached prefix first, among the first `window` of the line; the
earlier one where two can reuse as much.

A request without a cached prefix may wait for as long as others with one keep arriving.
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
