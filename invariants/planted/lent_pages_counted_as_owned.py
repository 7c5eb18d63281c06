"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool
from hicache.core.types import PageState

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Pages that a transfer has filled are subtracted from the count of owned pages."
KILLS = "pool-sum"

_cache = Pool.cache
_OWNED, _LENT = int(PageState.OWNED), int(PageState.LENT)


def _misbooked(pool: Any, pages: Any, node: int) -> None:
    lent = pool.counts[_LENT]
    _cache(pool, pages, node)
    filled = lent - pool.counts[_LENT]
    pool.counts[_LENT] += filled
    pool.counts[_OWNED] -= filled


def plant(patch: Patch) -> None:
    patch(Pool, "cache", _misbooked)
