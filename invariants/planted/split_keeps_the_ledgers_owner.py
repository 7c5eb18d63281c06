"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Device pages that a split moves to the upper half stay the lower one's in the ledger."
KILLS = "own-d"

_move = Pool.move


def _unmoved(pool: Any, pages: Any, node: int) -> None:
    if pool.tier != Tier.DEVICE:
        _move(pool, pages, node)


def plant(patch: Patch) -> None:
    patch(Pool, "move", _unmoved)
