"""Planted in `placement._undo`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An admission that is refused counts as a use of what it would have reused."
KILLS = "lru"
EXCUSES = (Reason.TO_BE_ADMITTED,)

_undo = placement._undo


def _undo_and_use(state: Any, plan: Any) -> None:
    _undo(state, plan)
    for node in plan.path:
        node.last_use = [state.tick] * len(node.last_use)
        state.touched[node.id] = node


def plant(patch: Patch) -> None:
    patch(placement, "_undo", _undo_and_use)
