"""Planted in `reclaim._evict_copy`: a leaf counts as unlocked."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction, reclaim
from hicache.core.radix.tree import span
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("F1",)
TITLE = "A leaf with a locked backbone is evicted as a whole when its window or state is wanted."
KILLS = ""


def _whole(state: Any, node: Any, index: int, short: int) -> None:
    if node.with_pages[0] == 0:
        reclaim._evict_leaf(state, node, index, span(node, state.stride))
    else:
        eviction.tombstone(state, node, Tier.DEVICE, index)


def plant(patch: Patch) -> None:
    patch(reclaim, "_evict_copy", _whole)
