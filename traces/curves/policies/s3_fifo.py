"""S3-FIFO: a small queue for new pages, a main queue for those used again, and a ghost queue.

The small queue has a tenth of the cache, at least one page. A page that leaves it goes on to the
main queue if it was used twice or more meanwhile; otherwise it leaves the cache, and the ghost
queue remembers its name. A page whose name is remembered enters the main queue at once. A page at
the end of the main queue that was used goes round again, and its count (at most 3) drops by one.
The main queue gives the victim while it has more than its nine tenths, or if the small queue is
empty
(Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023; thresholds and the choice of the queue as in their
simulator libCacheSim).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable

SUMMARY = "a small queue for new pages, a main one for pages used twice there"

_MOST_USES = 3
_USES_TO_STAY = 2


class S3Fifo:
    """resident: the uses of each page, up to 3."""

    def __init__(self, capacity: int) -> None:
        self.resident: dict[int, int] = {}
        self._capacity = capacity
        self._main_room = capacity - max(1, capacity // 10)
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._ghost: OrderedDict[int, None] = OrderedDict()

    def use(self, pages: Iterable[int]) -> None:
        uses = self.resident
        for page in pages:
            count = uses.get(page)
            if count is not None:
                if count < _MOST_USES:
                    uses[page] = count + 1
                continue
            remembered = page in self._ghost
            if remembered:
                del self._ghost[page]
            while len(uses) == self._capacity:
                if len(self._main) > self._main_room or not self._small:
                    self._evict_main()
                else:
                    self._evict_small()
            uses[page] = 0
            (self._main if remembered else self._small).append(page)

    def _evict_small(self) -> None:
        page = self._small.popleft()
        if self.resident[page] >= _USES_TO_STAY:
            self.resident[page] = 0
            self._main.append(page)
            return
        del self.resident[page]
        self._ghost[page] = None
        if len(self._ghost) > self._main_room:
            self._ghost.popitem(last=False)

    def _evict_main(self) -> None:
        page = self._main.popleft()
        count = self.resident[page]
        if count:
            self.resident[page] = count - 1
            self._main.append(page)
        else:
            del self.resident[page]


def make(capacity: int) -> S3Fifo:
    return S3Fifo(capacity)
