"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from hicache.core.types import PageState
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "While pages of a pool retire, an eviction there frees one page too many."
KILLS = "evict-min"
EXCUSES = (Reason.RETIRING,)

_evict_device = reclaim.evict_device


def _evict(state: Any, index: int, count: int) -> None:
    retiring = state.pools[0][index].counts[PageState.RETIRING]
    _evict_device(state, index, count + bool(retiring))


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _evict)
