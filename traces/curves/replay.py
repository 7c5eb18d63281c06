"""Eviction policies replayed at one capacity, page by page: each is an entry of POLICIES.

A request hits the leading pages of its path that the cache has when it comes. Then it uses all of
its pages, the last one first, so that the root ends as the most recent one. Pages behind a missing
page are no hits, whether the cache has them or not. A policy decides at each use, knows nothing of
the tree, and may push out a page of the very request that it serves.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from ..formats.base import Paged
from .runs import identified_tokens

_MOST_USES, _USES_TO_STAY = 3, 2  # of S3-FIFO
_NONE = -1


class Policy(Protocol):
    @property
    def resident(self) -> Container[int]:
        """The pages in the cache; one object for the whole replay."""

    def use(self, pages: Iterable[int]) -> None:
        """Uses the pages in this order. A page that is not in the cache is inserted."""


def leading(pages: Sequence[int], resident: Container[int]) -> int:
    """How many pages there are before the first one that is not in the cache."""
    for place, page in enumerate(pages):
        if page not in resident:
            return place
    return len(pages)


class Paths:
    """The paths of a trace, kept for several replays: eight bytes for each use of a page."""

    def __init__(self, trace: Paged, first: int = 0) -> None:
        self.page_size = trace.page_size
        self.first = first
        self.tokens = identified_tokens(trace).tolist()
        paths = [trace.chain(job) for job in trace.jobs]
        self._ends = np.cumsum([len(path) for path in paths]).tolist()
        self._flat = np.concatenate(paths) if paths else np.empty(0, dtype=np.int64)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self._ends:
            yield self._flat[start:end].tolist()
            start = end

    def hit(self, request: int, pages: int) -> int:
        """The tokens of this many leading pages that count as hits."""
        if request < self.first:
            return 0
        tokens: int = min(pages * self.page_size, self.tokens[request])
        return tokens


def hit_tokens(paths: Paths, cache: Policy) -> int:
    """Prompt tokens that the requests hit, in order, in a cache that is empty at first."""
    resident = cache.resident
    hits = 0
    for request, path in enumerate(paths):
        hits += paths.hit(request, leading(path, resident))
        path.reverse()
        cache.use(path)
    return hits


class Fifo:
    """FIFO: the page that was inserted first goes first, however often it was used."""

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


class Lfu:
    """LFU: the page with the fewest uses since it was inserted goes first, then the least recent.

    Counts of evicted pages are forgotten ("in-cache LFU"). One queue for each count, so an eviction
    looks at one queue.

    resident: the uses of each page since it was inserted."""

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


class S3Fifo:
    """S3-FIFO: a small queue for new pages, a main queue for those used again, and a ghost queue.

    The small queue has a tenth of the cache, at least one page. A page that leaves it goes on to
    the main queue if it was used twice or more meanwhile; otherwise it leaves the cache, and the
    ghost queue remembers its name. A page whose name is remembered enters the main queue at once. A
    page at the end of the main queue that was used goes round again, and its count (at most 3)
    drops by one. The main queue gives the victim while it has more than its nine tenths, or if the
    small queue is empty (Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023; thresholds and the choice of the
    queue as in their simulator libCacheSim).

    resident: the uses of each page, up to 3."""

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


class Sieve:
    """SIEVE: a queue in order of insertion, with a hand that passes over pages used since it came
    by.

    A use marks a page. The hand starts at the oldest page and moves towards newer ones, from the
    newest to the oldest again; it takes marks away and evicts the first page without one (Zhang,
    Yang, Yue, Vigfusson, Rashmi, NSDI 2024).

    resident: whether each page is marked."""

    def __init__(self, capacity: int) -> None:
        self.resident: dict[int, bool] = {}
        self._capacity = capacity
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._newest = self._oldest = self._hand = _NONE

    def use(self, pages: Iterable[int]) -> None:
        marked = self.resident
        for page in pages:
            if page in marked:
                marked[page] = True
                continue
            if len(marked) == self._capacity:
                self._evict()
            marked[page] = False
            self._newer[page], self._older[page] = _NONE, self._newest
            if self._newest == _NONE:
                self._oldest = page
            else:
                self._newer[self._newest] = page
            self._newest = page

    def _evict(self) -> None:
        marked, newer = self.resident, self._newer
        page = self._oldest if self._hand == _NONE else self._hand
        while marked[page]:
            marked[page] = False
            page = newer[page]
            if page == _NONE:
                page = self._oldest
        after, before = newer.pop(page), self._older.pop(page)
        if before == _NONE:
            self._oldest = after
        else:
            newer[before] = after
        if after == _NONE:
            self._newest = before
        else:
            self._older[after] = before
        self._hand = after
        del marked[page]


class Slru:
    """Segmented LRU: pages that were used again are protected from pages that were used once.

    A new page is on probation. A use of a page on probation protects it. The protected segment has
    four fifths of the cache; what it pushes out, its least recent page, is on probation again, as
    the most recent. Victims are the least recent on probation (Karedla, Love, Wherry, 1994).

    resident: whether each page is protected."""

    def __init__(self, capacity: int) -> None:
        self.resident: dict[int, bool] = {}
        self._capacity = capacity
        self._room = capacity * 4 // 5
        self._probation: OrderedDict[int, None] = OrderedDict()
        self._protected: OrderedDict[int, None] = OrderedDict()

    def use(self, pages: Iterable[int]) -> None:
        protected_by, probation, protected = self.resident, self._probation, self._protected
        for page in pages:
            state = protected_by.get(page)
            if state:
                protected.move_to_end(page)
            elif state is None:
                if len(protected_by) == self._capacity:
                    segment = probation or protected
                    victim, _ = segment.popitem(last=False)
                    del protected_by[victim]
                protected_by[page] = False
                probation[page] = None
            elif not self._room:
                probation.move_to_end(page)
            else:
                del probation[page]
                protected[page] = None
                protected_by[page] = True
                if len(protected) > self._room:
                    demoted, _ = protected.popitem(last=False)
                    probation[demoted] = None
                    protected_by[demoted] = False


POLICIES: dict[str, Callable[[int], Policy]] = {
    "fifo": Fifo,
    "lfu": Lfu,
    "s3_fifo": S3Fifo,
    "sieve": Sieve,
    "slru": Slru,
}
