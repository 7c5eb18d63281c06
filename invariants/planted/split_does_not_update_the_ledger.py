"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "After a split, the ledger still assigns the upper half's device pages to the lower half."
KILLS = "own-d"

_move = Pool.move


def _unmoved(pool: Any, pages: Any, node: int) -> None:
    if pool.tier != Tier.DEVICE:
        _move(pool, pages, node)


def plant(patch: Patch) -> None:
    patch(Pool, "move", _unmoved)
