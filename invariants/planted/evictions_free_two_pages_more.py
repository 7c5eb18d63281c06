"""Planted in `reclaim.make_device_room`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("J3",)
TITLE = "An eviction for a request frees two pages more than are missing."
KILLS = "evict-min"


def _two_more(state: Any, index: int, count: int) -> bool:
    pool = state.pools[Tier.DEVICE][index]
    if pool.free < count:
        reclaim.evict_device(state, index, count - pool.free + 2)
    return bool(pool.free >= count)


def plant(patch: Patch) -> None:
    patch(reclaim, "make_device_room", _two_more)
