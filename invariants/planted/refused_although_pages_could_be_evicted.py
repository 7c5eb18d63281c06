"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("J6",)
TITLE = "Only free pages count as room, so a full cache refuses everybody."
KILLS = "live-evict"
EXCUSES = (Reason.EITHER_PLAN,)


def _free_only(pool: Any) -> int:
    return int(pool.free)


def plant(patch: Patch) -> None:
    patch(Pool, "available", property(_free_only))
