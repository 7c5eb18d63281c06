"""The most pages that any policy can hit in a cache of a given capacity (Belady's rule, in bulk).

The future is known, and a page may be left out of the cache when it was used (bypass). A reuse is
an interval from one use of a page to the next; a cache of C pages can keep at most C intervals that
overlap. Whenever there are more, the one that ends last is given up (Belady, 1966, for every use;
Faigle and Nawijn, 1995, as a rule for intervals). Of intervals that end with the same request, the
one deepest on its path goes first, so the kept pages of a request are always leading pages, and a
cache that drops leaves only can do the same.

The rule keeps as many pages as possible. In tokens it may miss a little: a partial last page counts
like a whole one. `bound` is above every policy in tokens, too.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distances import Curve
from .runs import Column, Runs


@dataclass(frozen=True, slots=True)
class Kept:
    """What the optimum hits with one capacity. bound: tokens that no policy can exceed."""

    pages: int
    tokens: int
    bound: int


class Optimum:
    """The optimum of the reuses of a curve."""

    def __init__(self, curve: Curve) -> None:
        runs = curve.runs
        self._page_size = curve.page_size
        self._runs = runs
        self._short = curve.short
        self._ceiling = self._tokens(runs.pages)
        self._enough = _most_at_once(runs)
        self._starts = _array(np.argsort(runs.last, kind="stable"))
        furthest = np.lexsort((-runs.depth, -runs.request))
        rank = np.empty(len(runs), dtype=np.int32)
        rank[furthest] = np.arange(len(runs))
        self._furthest, self._rank = _array(furthest), _array(rank)
        self._columns = tuple(map(_array, (runs.last, runs.request, runs.pages)))

    def at(self, capacity: int) -> Kept:
        everything = capacity >= self._enough
        kept = self._runs.pages if everything else np.asarray(self._kept(capacity)).astype(np.int64)
        pages = int(kept.sum())
        return Kept(pages, self._tokens(kept), min(self._ceiling, pages * self._page_size))

    def _tokens(self, kept: Column) -> int:
        short = self._short * (kept == self._runs.pages)
        return int((kept * self._page_size - short).sum())

    def _kept(self, capacity: int) -> array[int]:
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
        return kept


def _array(column: NDArray[np.integer[Any]]) -> array[int]:
    """Four bytes an element, and as fast to index as a list, which takes ten times as many."""
    return array("i", column.astype(np.int32).tobytes())


def _most_at_once(runs: Runs) -> int:
    """The least capacity that keeps every reuse: pages between two uses, most at any time."""
    if not len(runs):
        return 0
    pages = np.concatenate((runs.pages, -runs.pages))
    when = np.concatenate((runs.last, runs.request))
    change = np.zeros(int(when.max()) + 1, dtype=np.int64)
    np.add.at(change, when, pages)
    return int(np.cumsum(change).max())
