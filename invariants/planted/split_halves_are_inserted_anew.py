"""Planted in `tree`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The upper half of a node that is split counts as inserted by the split."
KILLS = "lru"
EVICTION = "fifo"

_split = tree.split


def _anew(state: Any, node: Any, at: int) -> Any:
    upper = _split(state, node, at)
    upper.inserted = state.tick
    return upper


def plant(patch: Patch) -> None:
    patch(tree, "split", _anew)
