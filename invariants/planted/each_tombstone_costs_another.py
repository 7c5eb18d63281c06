"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An eviction of windows frees one page too many."
KILLS = "evict-min"
COMPONENTS = ("full", "swa")
EXCUSES = (Reason.UNCUT,)

_evict_device = reclaim.evict_device


def _evict(state: Any, index: int, count: int) -> None:
    _evict_device(state, index, count + (1 if index else 0))


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _evict)
