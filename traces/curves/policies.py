"""Eviction policies replayed at one capacity, page by page, and the optimum that knows the future.

A request hits the leading pages of its path that the cache has when it comes. Then it uses all of
its pages, the last one first, so that the root ends as the most recent one. Pages behind a missing
page are no hits, whether the cache has them or not. A policy decides at each use, knows nothing of
the tree, and may push out a page of the very request that it serves.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..formats.base import Paged
from .distances import Column, Curve, Runs, identified_tokens

_MOST_USES, _USES_TO_STAY = 3, 2  # of S3-FIFO


class Paths:
    """The paths of a trace, kept for several replays: eight bytes for each use of a page. Hits of
    requests before `first` do not count."""

    def __init__(self, trace: Paged, first: int = 0) -> None:
        self._page_size = trace.page_size
        self._first = first
        self._tokens = identified_tokens(trace).tolist()
        paths = [trace.chain(job) for job in trace.jobs]
        self._ends = np.cumsum([len(path) for path in paths]).tolist()
        self._flat = np.concatenate(paths) if paths else np.empty(0, dtype=np.int64)

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for end in self._ends:
            yield self._flat[start:end].tolist()
            start = end

    def hit_tokens(self, cache: Cache) -> int:
        """Prompt tokens that the requests hit, in order, in a cache that is empty at first."""
        pages, hits = cache.pages, 0
        for request, path in enumerate(self):
            leading = 0
            for page in path:
                if page not in pages:
                    break
                leading += 1
            if request >= self._first:
                hits += min(leading * self._page_size, self._tokens[request])
            path.reverse()
            for page in path:
                if page in pages:
                    cache.again(page)
                else:
                    cache.insert(page)
        return hits


class Cache:
    """FIFO: the page that was inserted first goes first, however often it was used.

    Other policies derive from it. pages: those in the cache, each with what the policy remembers of
    it.
    """

    def __init__(self, capacity: int) -> None:
        self.pages: dict[int, int] = {}
        self.capacity = capacity
        self._queue: deque[int] = deque()

    def again(self, page: int) -> None:
        """A use of a page in the cache."""

    def insert(self, page: int) -> None:
        """A use of a page that is not in the cache. A full cache evicts one first."""
        if len(self.pages) == self.capacity:
            del self.pages[self._queue.popleft()]
        self.pages[page] = 0
        self._queue.append(page)


class Lfu(Cache):
    """LFU: the page with the fewest uses since it was inserted goes first, then the least recent.

    Counts of evicted pages are forgotten ("in-cache LFU"). One queue for each count of uses.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._queues: defaultdict[int, OrderedDict[int, None]] = defaultdict(OrderedDict)

    def again(self, page: int) -> None:
        uses = self.pages[page]
        del self._queues[uses][page]
        self.pages[page] = uses + 1
        self._queues[uses + 1][page] = None

    def insert(self, page: int) -> None:
        if len(self.pages) == self.capacity:
            least = 1
            while not self._queues[least]:
                least += 1
            del self.pages[self._queues[least].popitem(last=False)[0]]
        self.pages[page] = 1
        self._queues[1][page] = None


class S3Fifo(Cache):
    """S3-FIFO: a small queue for new pages, a main queue for those used again, and a ghost queue.

    The small queue has a tenth of the cache, at least one page. A page that leaves it goes on to
    the main queue if it was used twice or more meanwhile; otherwise it leaves the cache, and the
    ghost queue remembers its name. A page whose name is remembered enters the main queue at once. A
    page at the end of the main queue that was used goes round again, and its count (at most 3)
    drops by one. The main queue gives the victim while it has more than its nine tenths, or if the
    small queue is empty (Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023; thresholds and the choice of the
    queue as in their simulator libCacheSim).
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._main_room = capacity - max(1, capacity // 10)
        self._main: deque[int] = deque()
        self._ghost: OrderedDict[int, None] = OrderedDict()

    def again(self, page: int) -> None:
        self.pages[page] = min(self.pages[page] + 1, _MOST_USES)

    def insert(self, page: int) -> None:
        queue = self._queue
        if page in self._ghost:
            del self._ghost[page]
            queue = self._main
        while len(self.pages) == self.capacity:
            if len(self._main) > self._main_room or not self._queue:
                self._evict_main()
            else:
                self._evict_small()
        self.pages[page] = 0
        queue.append(page)

    def _evict_small(self) -> None:
        page = self._queue.popleft()
        if self.pages[page] >= _USES_TO_STAY:
            self.pages[page] = 0
            self._main.append(page)
            return
        del self.pages[page]
        self._ghost[page] = None
        if len(self._ghost) > self._main_room:
            self._ghost.popitem(last=False)

    def _evict_main(self) -> None:
        page = self._main.popleft()
        uses = self.pages.pop(page)
        if uses:
            self.pages[page] = uses - 1
            self._main.append(page)


class Sieve(Cache):
    """SIEVE: a queue in order of insertion, with a hand that passes over pages used since it came
    by.

    A use marks a page. The hand starts at the oldest page and moves towards newer ones, from the
    newest to the oldest again; it takes marks away and evicts the first page without one (Zhang,
    Yang, Yue, Vigfusson, Rashmi, NSDI 2024). The queue stands in two halves: pages that the hand
    has passed, which are older, and those before it.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._passed: deque[int] = deque()

    def again(self, page: int) -> None:
        self.pages[page] = 1

    def insert(self, page: int) -> None:
        if len(self.pages) == self.capacity:
            self._evict()
        self.pages[page] = 0
        self._queue.append(page)

    def _evict(self) -> None:
        victim = -1
        while victim < 0:
            page = self._queue.popleft()
            if self.pages[page]:
                self.pages[page] = 0
                self._passed.append(page)
            else:
                victim = page
            if not self._queue:
                self._queue, self._passed = self._passed, self._queue
        del self.pages[victim]


class Slru(Cache):
    """Segmented LRU: pages that were used again are protected from pages that were used once.

    A new page is on probation. A use of a page on probation protects it. The protected segment has
    four fifths of the cache; what it pushes out, its least recent page, is on probation again, as
    the most recent. Victims are the least recent on probation (Karedla, Love, Wherry, 1994).
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._room = capacity * 4 // 5
        self._probation: OrderedDict[int, None] = OrderedDict()
        self._protected: OrderedDict[int, None] = OrderedDict()

    def again(self, page: int) -> None:
        if self.pages[page]:
            self._protected.move_to_end(page)
            return
        del self._probation[page]
        self._protected[page] = None
        self.pages[page] = 1
        if len(self._protected) > self._room:
            demoted, _ = self._protected.popitem(last=False)
            self._probation[demoted] = None
            self.pages[demoted] = 0

    def insert(self, page: int) -> None:
        if len(self.pages) == self.capacity:
            del self.pages[(self._probation or self._protected).popitem(last=False)[0]]
        self.pages[page] = 0
        self._probation[page] = None


POLICIES: dict[str, type[Cache]] = {
    "fifo": Cache,
    "lfu": Lfu,
    "s3_fifo": S3Fifo,
    "sieve": Sieve,
    "slru": Slru,
}


class Kept(NamedTuple):
    """What the optimum hits with one capacity. bound: tokens that no policy can exceed."""

    pages: int
    tokens: int
    bound: int


class Optimum:
    """The most pages that any policy can hit in a cache of a given capacity (Belady, in bulk).

    The future is known, and a page may be left out of the cache when it was used (bypass). A reuse
    is an interval from one use of a page to the next; a cache of C pages can keep at most C
    intervals that overlap. Whenever there are more, the one that ends last is given up (Belady,
    1966, for every use; Faigle and Nawijn, 1995, as a rule for intervals). Of intervals that end
    with the same request, the one deepest on its path goes first, so the kept pages of a request
    are always leading pages, and a cache that drops leaves only can do the same.

    The rule keeps as many pages as possible. In tokens it may miss a little: a partial last page
    counts like a whole one. `bound` is above every policy in tokens, too.
    """

    def __init__(self, curve: Curve) -> None:
        runs = curve.runs
        self._curve = curve
        self._enough = _most_at_once(runs)
        self._starts = _array(np.argsort(runs.last, kind="stable"))
        furthest = np.lexsort((-runs.depth, -runs.request))
        rank = np.empty(len(runs), dtype=np.int32)
        rank[furthest] = np.arange(len(runs))
        self._furthest, self._rank = _array(furthest), _array(rank)
        self._columns = tuple(map(_array, (runs.last, runs.request, runs.pages)))

    def at(self, capacity: int) -> Kept:
        curve, all_pages = self._curve, self._curve.runs.pages
        kept = all_pages if capacity >= self._enough else self._kept(capacity)
        pages = int(kept.sum())
        tokens = pages * curve.page_size - int((curve.short * (kept == all_pages)).sum())
        return Kept(pages, tokens, min(curve.unbounded, pages * curve.page_size))

    def _kept(self, capacity: int) -> Column:
        """How many pages of each run stay cached until they are used again."""
        last, request, pages = self._columns
        rank, furthest = self._rank, self._furthest
        kept = pages[:]
        cached, ended = 0, 0
        heap: list[int] = []
        for run in self._starts:
            now = last[run]
            while request[ended] <= now:
                cached -= kept[ended]
                ended += 1
            heappush(heap, rank[run])
            cached += pages[run]
            while cached > capacity:
                worst = furthest[heap[0]]
                over = cached - capacity
                if kept[worst] > over:
                    kept[worst] -= over
                    cached = capacity
                else:
                    cached -= kept[worst]
                    kept[worst] = 0
                    heappop(heap)
        return np.asarray(kept).astype(np.int64)


def _array(column: NDArray[np.integer[Any]]) -> array[int]:
    """Four bytes an element, and as fast to index as a list, which takes ten times as many."""
    return array("i", column.astype(np.int32).tobytes())


def _most_at_once(runs: Runs) -> int:
    """The least capacity that keeps every reuse: pages between two uses, most at any time."""
    if not len(runs):
        return 0
    change = np.zeros(int(runs.request.max()) + 1, dtype=np.int64)
    np.add.at(change, runs.last, runs.pages)
    np.subtract.at(change, runs.request, runs.pages)
    return int(np.cumsum(change).max())
