"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.actions import Admitted

from .base import Patch

ROWS: tuple[str, ...] = ("L4",)
TITLE = "Tokens loaded for a request are reported as computed by it."
KILLS = "metric-ref"

_place = placement.place


def _reported(state: Any, request: Any, chunk: int) -> int:
    end = _place(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Admitted and item.host_pages:
            loaded = item.host_pages * state.config.page_size
            state.out[at] = item._replace(tokens_to_compute=item.tokens_to_compute + loaded)
    return end


def plant(patch: Patch) -> None:
    patch(placement, "place", _reported)
