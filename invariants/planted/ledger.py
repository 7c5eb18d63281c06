"""Bugs in the ledger: who owns a page, and which pages are free."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool
from hicache.core.types import PageState, Tier

from .base import Patch, bug

_take = Pool._take
_cache = Pool.cache
_give_back = Pool.give_back
_move = Pool.move


@bug(rows=("J6",), kills="spec")
def refused_although_pages_could_be_evicted(patch: Patch) -> None:
    """Only free pages count as room, so a full cache refuses everybody."""

    def free_only(pool: Any) -> int:
        return int(pool.free)

    patch(Pool, "available", property(free_only))


@bug(Pool, "cache", kills="own-h")
def landed_backup_pages_stay_with_the_flight(pool: Any, pages: Any, node: int) -> None:
    """Host pages that a backup has filled still belong to the flight in the ledger."""
    owners = pool.owner[pages].copy()
    _cache(pool, pages, node)
    if pool.tier == Tier.HOST:
        pool.owner[pages] = owners


@bug(Pool, "cache", kills="pool-sum")
def lent_pages_counted_as_owned(pool: Any, pages: Any, node: int) -> None:
    """Pages that a transfer has filled are subtracted from the count of owned pages."""
    lent = pool.counts[PageState.LENT]
    _cache(pool, pages, node)
    filled = lent - pool.counts[PageState.LENT]
    pool.counts[PageState.LENT] += filled
    pool.counts[PageState.OWNED] -= filled


@bug(Pool, "move", kills="own-d")
def split_does_not_update_the_ledger(pool: Any, pages: Any, node: int) -> None:
    """After a split, the ledger still assigns the upper half's device pages to the lower half."""
    if pool.tier != Tier.DEVICE:
        _move(pool, pages, node)


@bug(Pool, "give_back", kills="generation")
def freed_pages_keep_their_generation(self: Pool, pages: Any) -> None:
    """The generation of a page does not change when the page becomes free."""
    before = self.generation.copy()
    _give_back(self, pages)
    self.generation[:] = before


@bug(Pool, "_take", rows=("A4",), kills="alias")
def pool_returns_a_view_of_its_free_list(self: Pool, count: int, owner: int, state: int) -> Any:
    """Pages are handed out as a live view of the free list, which is rewritten later."""
    if not count or count > self.free:
        return _take(self, count, owner, state)
    top = self.free
    self._stack[top - count : top] = _take(self, count, owner, state)
    return self._stack[top - count : top]
