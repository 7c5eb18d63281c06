"""Planted in `reclaim._evict_leaf`: a leaf that is written back goes whole."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from hicache.core.radix.tree import span

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An eviction of one page copies the whole leaf to host."
KILLS = "copy-once"

_evict_leaf = reclaim._evict_leaf


def _whole(state: Any, node: Any, index: int, pages: int) -> Any:
    if not index and reclaim._to_write_back(state, node, index, whole=True):
        pages = span(node, state.stride)
    return _evict_leaf(state, node, index, pages)


def plant(patch: Patch) -> None:
    patch(reclaim, "_evict_leaf", _whole)
