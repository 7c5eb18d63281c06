"""Planted in `eviction.delete_dead`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A leaf without a live boundary stays while the node above it is locked."
KILLS = "dead-leaf"
COMPONENTS = ("full", "mamba")
EXCUSES = (Reason.LOCKED_LEAF,)

_delete_dead = eviction.delete_dead


def _but_those_below(state: Any) -> None:
    state.dead[:] = [
        node for node in state.dead if node.parent is None or not any(map(any, node.parent.locks))
    ]
    _delete_dead(state)


def plant(patch: Patch) -> None:
    patch(eviction, "delete_dead", _but_those_below)
