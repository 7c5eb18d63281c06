"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.errors import CoreBug
from hicache.core.requests import checkpoints
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("J7",)
TITLE = "Donating a state fails with CoreBug while every other state is locked."
KILLS = ""
EXCUSES = (Reason.NO_NEXT_SLOT,)

_make_replacements = checkpoints.make_slot_room


def _insist(state: Any, counts: list[int]) -> bool:
    evicted = _make_replacements(state, counts)
    for index, count in enumerate(counts):
        if not state.components[index].positional and state.pools[0][index].free < count:
            raise CoreBug("no slot for a state")
    return evicted


def plant(patch: Patch) -> None:
    patch(checkpoints, "make_slot_room", _insist)
