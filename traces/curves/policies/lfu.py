"""LFU: the page with the fewest uses since it was inserted goes first, the least recent of these.

Counts of evicted pages are forgotten ("in-cache LFU"). One queue for each count, so an eviction
looks at one queue.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

SUMMARY = "the page with the fewest uses goes first, the least recent of these"


class Lfu:
    """resident: the uses of each page since it was inserted."""

    def __init__(self, capacity: int) -> None:
        self.resident: dict[int, int] = {}
        self._capacity = capacity
        self._queues: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)
        self._least = 1

    def use(self, pages: Iterable[int]) -> None:
        uses, queues = self.resident, self._queues
        for page in pages:
            count = uses.get(page, 0)
            if count:
                queue = queues[count]
                del queue[page]
                if not queue:
                    del queues[count]
                    if self._least == count:
                        self._least = count + 1
            else:
                if len(uses) == self._capacity:
                    self._evict()
                self._least = 1
            uses[page] = count + 1
            queues[count + 1][page] = None

    def _evict(self) -> None:
        queue = self._queues[self._least]
        victim, _ = queue.popitem(last=False)
        if not queue:
            del self._queues[self._least]
        del self.resident[victim]


def make(capacity: int) -> Lfu:
    return Lfu(capacity)
