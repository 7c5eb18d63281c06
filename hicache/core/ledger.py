"""The page ledger of one pool: who has each page, inside the core and nowhere else (see `core`).
Freeing gives the page a new generation, so a stale handle can be told from a live one.

    capacity == free + owned + cached + reserved + retiring, after every call.
"""

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import About, CoreBug
from .types import NO_PAGES, Pages, PageState, Tier, frozen

_ONE_LOAN = np.int32(1).tobytes()
_FREE: Final = 0  # the members of `PageState` as plain numbers, which are faster
_OWNED: Final = 1
_CACHED: Final = 2
_RESERVED: Final = 3
_RETIRING: Final = 4
# The values that arrays are set to, as arrays: numpy would make one of a number each time.
_AS_STATE: Final = [np.array(state, dtype=np.uint8) for state in PageState]
_NO_LOAN: Final = np.array(0, dtype=np.int32)
_LENT_ONCE: Final = np.array(1, dtype=np.int32)


class Pool:
    """The ledger of one component's pool on one tier.

    state: uint8[capacity]. owner: int64[capacity], a request id (OWNED), node id (CACHED) or
    transfer id (RESERVED), otherwise of the last owner. loans: int32[capacity], transfers that read
    or write the page now. generation: int64[capacity], the number of the call that last freed the
    page. counts: pages per state. free: how many are free. protected: cached pages under a lock.

    A single page, as most states and windows are, is an index as a number: many times faster.
    """

    __slots__ = (
        *("_frees", "_open_loans", "_stack", "capacity", "component", "counts", "free"),
        *("generation", "loans", "owner", "protected", "state", "tier"),
    )

    def __init__(self, tier: Tier, component: str, capacity: int) -> None:
        self.tier = tier
        self.component = component
        self.capacity = capacity
        self.state: NDArray[np.uint8] = np.zeros(capacity, dtype=np.uint8)
        self.owner: Pages = np.full(capacity, -1, dtype=np.int64)
        self.loans: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self.generation: Pages = np.zeros(capacity, dtype=np.int64)
        self.counts = [capacity, 0, 0, 0, 0]
        self.protected = 0
        self._stack: Pages = np.arange(capacity, dtype=np.int64)  # its end is free
        self.free = capacity
        self._open_loans = 0
        self._frees = 0

    @property
    def evictable(self) -> int:
        """Cached pages that no lock protects."""
        return self.counts[_CACHED] - self.protected

    @property
    def available(self) -> int:
        """Pages that are free or that no lock protects."""
        return self.free + self.counts[_CACHED] - self.protected

    def free_pages(self) -> Pages:
        """The free list, next page last (a copy, for checks)."""
        return self._stack[self.capacity - self.free :][::-1].copy()

    def take(self, count: int, owner: int) -> Pages:
        """`count` free pages, now OWNED by request `owner`."""
        return self._take(count, owner, _OWNED)

    def reserve(self, count: int, transfer: int) -> Pages:
        """`count` free pages, now RESERVED to transfer `transfer` as its target."""
        return self._take(count, transfer, _RESERVED)

    def cache(self, pages: Pages, node: int) -> None:
        """Pages of a request or of a transfer that has landed now belong to a node."""
        count = len(pages)
        where: Pages | int = pages if count > 1 else pages.item(0)
        states = self.state[where].tobytes()
        before = states[0]
        if before not in (_OWNED, _RESERVED):
            raise CoreBug(
                f"{self}: page {pages[0]} is {PageState(before).name.lower()}",
                self._page(int(pages[0])),
            )
        if states.count(before) < count:
            raise self._unexpected(pages, before)
        self.counts[before] -= count
        self.counts[_CACHED] += count
        self.state[where] = _AS_STATE[_CACHED]
        self.owner[where] = node

    def move(self, pages: Pages, node: int) -> None:
        """Cached pages change their node (a split)."""
        if self.state[pages].tobytes().count(_CACHED) < len(pages):
            raise self._unexpected(pages, _CACHED)
        self.owner[pages] = node

    def give_back(self, pages: Pages) -> None:
        """Free pages of any owner; those on loan retire instead."""
        count = len(pages)
        if not count:
            return
        if count == 1:
            self._give_back_one(pages.item(0))
            return
        states = self.state[pages].tobytes()
        first = states[0]
        if states.count(first) == count and first not in (_FREE, _RETIRING):
            self.counts[first] -= count
        else:
            self._uncount_mixed(pages, states)
        if self._open_loans and np.count_nonzero(self.loans[pages]):
            on_loan = self.loans[pages] > 0
            self.state[pages[on_loan]] = _RETIRING
            self.counts[_RETIRING] += int(on_loan.sum())
            pages = pages[~on_loan]
        self._push(pages)

    def _uncount_mixed(self, pages: Pages, states: bytes) -> None:
        """Take pages of several states out of their counts."""
        counts = Counter(states)
        if _FREE in counts or _RETIRING in counts:
            raise CoreBug(
                f"{self}: double free among pages {pages.tolist()[:8]}", *self._pages(pages)
            )
        for value, count in counts.items():
            self.counts[value] -= count

    def _give_back_one(self, page: int) -> None:
        """`give_back` of a single page, without arrays: what a state is, and many a window."""
        value = self.state.item(page)
        if value in (_FREE, _RETIRING):
            raise CoreBug(f"{self}: double free of page {page}", self._page(page))
        self.counts[value] -= 1
        if self._open_loans and self.loans[page]:
            self.state[page] = _RETIRING
            self.counts[_RETIRING] += 1
            return
        self.counts[_FREE] += 1
        self.state[page] = _FREE
        self._frees += 1
        self.generation[page] = self._frees
        self.free += 1
        self._stack[self.capacity - self.free] = page

    def lend(self, pages: Pages) -> None:
        """A transfer or forward pass begins to read or write these pages (each at most once)."""
        count = len(pages)
        if not count:
            return
        where: Pages | int = pages if count > 1 else pages.item(0)
        if self._open_loans and (count == 1 or np.count_nonzero(self.loans[where])):
            self.loans[where] += 1
        else:
            self.loans[where] = _LENT_ONCE
        self._open_loans += count

    def repay(self, pages: Pages) -> None:
        """It ended. Retiring pages without further loans become free."""
        count = len(pages)
        if not count:
            return
        where: Pages | int = pages if count > 1 else pages.item(0)
        loan = self.loans[where]
        if loan.tobytes() == _ONE_LOAN * count:
            self.loans[where] = _NO_LOAN
        else:
            if loan.min() < 1:
                raise CoreBug(
                    f"{self}: loan of pages {pages.tolist()[:8]} repaid twice", *self._pages(pages)
                )
            self.loans[where] = loan - 1
        self._open_loans -= count
        if self._open_loans < 0:
            raise CoreBug(f"{self}: more loans are repaid than are open")
        if self.counts[_RETIRING]:
            done = pages[(self.loans[pages] == 0) & (self.state[pages] == _RETIRING)]
            self.counts[_RETIRING] -= len(done)
            self._push(done)

    def _take(self, count: int, owner: int, state: int) -> Pages:
        if not 0 <= count <= self.free:
            raise CoreBug(
                f"{self}: {count} pages wanted, {self.free} free",
                About("pool", -1, int(self.tier), self.component),
            )
        if not count:
            return NO_PAGES
        first = self.capacity - self.free
        pages = self._stack[first : first + count].copy()
        self.free -= count
        self.counts[_FREE] -= count
        self.counts[state] += count
        where: Pages | int = pages if count > 1 else pages.item(0)
        self.state[where] = _AS_STATE[state]
        self.owner[where] = owner
        return frozen(pages)

    def _push(self, pages: Pages) -> None:
        count = len(pages)
        first = self.capacity - self.free - count
        if first < 0:
            raise CoreBug(f"{self}: {self.free} pages are free and {count} more come back")
        self.state[pages] = _AS_STATE[_FREE]
        self._frees += 1
        self.generation[pages] = self._frees
        self._stack[first : first + count] = pages
        self.free += count
        self.counts[_FREE] += count

    def _unexpected(self, pages: Pages, state: int) -> CoreBug:
        """Not all of the pages have this state."""
        result = sorted(PageState(value).name.lower() for value in np.unique(self.state[pages]))
        return CoreBug(
            f"{self}: expected {PageState(state).name.lower()} pages, found {result}",
            *self._pages(pages[self.state[pages] != state]),
        )

    def _page(self, page: int) -> About:
        return About("page", page, int(self.tier), self.component)

    def _pages(self, pages: Pages) -> list[About]:
        return [self._page(page) for page in pages.tolist()[:8] if page >= 0]

    def __str__(self) -> str:
        return f"{self.tier.name.lower()} pool of {self.component}"
