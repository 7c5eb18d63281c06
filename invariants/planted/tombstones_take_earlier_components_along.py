"""Planted in `eviction.tombstone`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An evicted state takes the window of its node along if that is on the other tier, too."
KILLS = "evict-min"
COMPONENTS = ("full", "swa", "mamba")
EXCUSES = (Reason.OTHER_POOL,)

_tombstone = eviction.tombstone


def _with_the_window(state: Any, node: Any, tier: Any, index: int) -> None:
    _tombstone(state, node, tier, index)
    for earlier in range(1, index):
        twice = node.pages[0][earlier] is not None and node.pages[1][earlier] is not None
        if twice and not node.locks[tier][earlier]:
            _tombstone(state, node, tier, earlier)


def plant(patch: Patch) -> None:
    patch(eviction, "tombstone", _with_the_window)
