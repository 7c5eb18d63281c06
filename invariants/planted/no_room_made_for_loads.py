"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement, reclaim
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("J1",)
TITLE = "Room is made for the prompt, but not for the pages that a load fills."
KILLS = ""
EXCUSES = (Reason.NO_ROOM_TO_LOAD,)


def _without_loads(state: Any, plan: Any) -> int:
    for index, count in enumerate(plan.needed):
        if not reclaim.make_device_room(state, index, count - plan.loading[index]):
            return index
    return -1


def plant(patch: Patch) -> None:
    patch(placement, "_make_room", _without_loads)
