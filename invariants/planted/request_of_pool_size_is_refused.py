"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission, refusals
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("J6",)
TITLE = "A request that needs exactly the whole pool is refused for ever."
KILLS = "live-evict"


def _too_large(state: Any, request: int, total: int) -> bool:
    capacity = state.pools[Tier.DEVICE][0].capacity
    if total >= capacity:
        refusals.refuse(state, request, "too_large", total, capacity)
    return bool(total >= capacity)


def plant(patch: Patch) -> None:
    patch(admission, "_is_too_large", _too_large)
