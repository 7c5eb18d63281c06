"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import seating
from hicache.core.actions import Seated

from .base import Patch

ROWS: tuple[str, ...] = ("L4",)
TITLE = "What is loaded for a request is reported as computed by it."
KILLS = "metric-ref"

_seat = seating.seat


def _reported(state: Any, request: Any, chunk: int) -> int:
    end = _seat(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Seated and item.host_pages:
            loaded = item.host_pages * state.config.page_size
            state.out[at] = item._replace(computed_tokens=item.computed_tokens + loaded)
    return end


def plant(patch: Patch) -> None:
    patch(seating, "seat", _reported)
