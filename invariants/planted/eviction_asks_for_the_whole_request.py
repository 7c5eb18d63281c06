"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("J3",)
TITLE = "An eviction asks for all pages that a request needs, not for the missing ones."
KILLS = "evict-min"


def _evict_it_all(state: Any, index: int, count: int) -> bool:
    pool = state.pools[Tier.DEVICE][index]
    if pool.free < count:
        reclaim.evict_device(state, index, count)
    return bool(pool.free >= count)


def plant(patch: Patch) -> None:
    patch(reclaim, "make_device_room", _evict_it_all)
