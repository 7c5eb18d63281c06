"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "While anything is written back, nothing is evicted."
KILLS = "live-evict"
EXCUSES = (Reason.ABOVE_WRITE_BACK,)

_evict_device = reclaim.evict_device


def _evict(state: Any, index: int, count: int) -> None:
    if not any(state.writing_back):
        _evict_device(state, index, count)


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _evict)
