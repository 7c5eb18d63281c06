"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.actions import Admitted

from .base import Patch

ROWS: tuple[str, ...] = ("L4",)
TITLE = "A request that waits for a load is told that one page less is loaded for it."
KILLS = "anchor"

_place = placement.place


def _short(state: Any, request: Any, chunk: int) -> int:
    end = _place(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Admitted and item.loaded_pages and item.loaded_pages[0]:
            state.out[at] = item._replace(
                loaded_pages=(item.loaded_pages[0] - 1, *item.loaded_pages[1:])
            )
    return end


def plant(patch: Patch) -> None:
    patch(placement, "place", _short)
