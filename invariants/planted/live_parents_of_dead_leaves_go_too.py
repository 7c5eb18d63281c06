"""Planted in `eviction.delete_dead`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "With a dead leaf goes the node above it, although its own end is a live boundary."
KILLS = "evict-min"
COMPONENTS = ("full", "mamba")
EXCUSES = (Reason.LAST_BOUNDARY,)


def _delete_parents(state: Any) -> None:
    while state.dead:
        node = state.dead.pop()
        used = node.children or node.legs or any(map(any, node.locks))
        if node.parent is not None and not used:
            eviction.delete(state, node)


def plant(patch: Patch) -> None:
    patch(eviction, "delete_dead", _delete_parents)
