"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import seating
from hicache.core.actions import Seated

from .base import Patch

ROWS: tuple[str, ...] = ("L4",)
TITLE = "A request that has to wait for a load is told that one page less is loaded for it."
KILLS = "anchor"

_seat = seating.seat


def _short(state: Any, request: Any, chunk: int) -> int:
    end = _seat(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Seated and item.loaded and item.loaded[0]:
            state.out[at] = item._replace(loaded=(item.loaded[0] - 1, *item.loaded[1:]))
    return end


def plant(patch: Patch) -> None:
    patch(seating, "seat", _short)
