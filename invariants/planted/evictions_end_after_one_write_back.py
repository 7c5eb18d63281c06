"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "After one write-back an eviction does not go on."
KILLS = "live-evict"
EXCUSES = (Reason.LOCKED_PATH,)

_evict_device = reclaim.evict_device


def _evict(state: Any, index: int, count: int) -> None:
    pool, begun = state.pools[0][index], state.writing_back[index]
    goal, before = pool.free + count, -1
    while before < pool.free < goal - begun and state.writing_back[index] == begun:
        before = pool.free
        _evict_device(state, index, begun + 1)


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _evict)
