"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Host pages that a backup has filled still belong to the flight in the ledger."
KILLS = "own-h"

_cache = Pool.cache


def _unsigned(pool: Any, pages: Any, node: int) -> None:
    owners = pool.owner[pages].copy()
    _cache(pool, pages, node)
    if pool.tier == Tier.HOST:
        pool.owner[pages] = owners


def plant(patch: Patch) -> None:
    patch(Pool, "cache", _unsigned)
