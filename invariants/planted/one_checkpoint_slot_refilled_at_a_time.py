"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints
from hicache.core.types import frozen
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Of the missing checkpoint slots, only the first is filled when slots are free."
KILLS = "leaves"
COMPONENTS = ("full", "mamba")
_refill = checkpoints.refill_checkpoint_slots
EXCUSES = (Reason.NO_STATE_SLOT,)


def _first(state: Any, request: Any, since: int) -> None:
    before = list(request.tables)
    _refill(state, request, since)
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        slots = request.tables[index].copy()
        fresh = [at for at in range(len(slots)) if before[index][at] < 0 <= slots[at]]
        for at in fresh[1:]:
            state.pools[0][index].give_back(slots[at : at + 1].copy())
            slots[at] = -1
        request.tables[index] = frozen(slots)


def plant(patch: Patch) -> None:
    patch(checkpoints, "refill_checkpoint_slots", _first)
