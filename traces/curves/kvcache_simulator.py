"""The semantics of kvcache-simulator 0.1.3, for figures that are equal to its own to the token.

Hits are counted as here: leading pages of the path that the cache has when the request comes. The
rest differs as follows.

    measured     the second half of the requests; the first half only warms the cache
    FIFO         inserts the root first, and hits change nothing
    LRU          evicts leaves of the cached tree, one for each page that it inserts, root first.
                 The pages that the request hit are protected, those that it inserted are not. So it
                 differs from the curve only where a request is larger than the cache
    optimum      keeps what is used again soonest, for all uses, those before the measured half, too

It leaves out capacities that are not full before the measured half begins; here they have figures.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush

from ..formats.base import Paged
from .distances import Curve, lru_curve
from .optimum import Optimum
from .replay import Fifo, Paths, hit_tokens, leading

NAME = "kvcache-simulator"
POLICIES = ("lru", "fifo", "optimum", "bound")


class Peer:
    """Hit tokens of one trace under these semantics. curve: of the measured half."""

    def __init__(self, trace: Paged) -> None:
        first = len(trace.jobs) // 2
        whole = lru_curve(trace)
        measured = whole.runs.request >= first
        self.curve: Curve = replace(whole.only(measured), first=first)
        self._paths = Paths(trace, first)
        self._optimum = Optimum(whole, counted=measured)

    def hit_tokens(self, policy: str, capacity: int) -> int:
        if policy == "optimum":
            return self._optimum.at(capacity).tokens
        if policy == "bound":
            return self.curve.unbounded
        if policy == "fifo":
            return hit_tokens(self._paths, Fifo(capacity), root_first=True)
        if capacity >= self.curve.largest:
            return self.curve.hit_tokens(capacity)
        return _small_lru(self._paths, capacity)


def _small_lru(paths: Paths, capacity: int) -> int:
    """LRU of leaves in a cache that may be smaller than a request."""
    used: dict[int, int] = {}  # the last use of each resident page
    parents: dict[int, int] = {}
    children: dict[int, int] = {}
    leaves: list[tuple[int, int]] = []  # (last use, page); an entry of an older use is void
    clock = hits = 0

    def evict(protected: set[int]) -> bool:
        skipped = []
        victim = -1
        while leaves and victim < 0:
            entry = heappop(leaves)
            use, page = entry
            if used.get(page) == use and not children.get(page):
                if page in protected:
                    skipped.append(entry)
                else:
                    victim = page
        for entry in skipped:
            heappush(leaves, entry)
        if victim < 0:
            return False
        del used[victim]
        parent = parents[victim]
        children[parent] -= 1
        if parent in used and not children[parent]:
            heappush(leaves, (used[parent], parent))
        return True

    for request, path in enumerate(paths):
        reached = leading(path, used)
        hits += paths.hit(request, reached)
        for page in path[:reached]:
            clock += 1
            used[page] = clock
            heappush(leaves, (clock, page))
        protected = set(path[:reached])
        for before, page in zip([-1, *path], path, strict=False):
            if page in used:
                continue
            if len(used) >= capacity and not evict(protected):
                break
            if before >= 0 and before not in used:
                break  # its own parent made room for it
            clock += 1
            used[page] = clock
            parents[page] = before
            children[before] = children.get(before, 0) + 1
            heappush(leaves, (clock, page))
    return hits
