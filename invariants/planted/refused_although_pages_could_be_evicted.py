"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import windows
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("J6",)
TITLE = "Only free pages count as room, so a full cache refuses everybody."
KILLS = "live-evict"


def _free_only(state: Any, index: int) -> int:
    return int(state.pools[Tier.DEVICE][index].free)


def plant(patch: Patch) -> None:
    patch(windows, "available", _free_only)
