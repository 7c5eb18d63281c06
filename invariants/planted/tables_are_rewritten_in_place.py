"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import windows
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Pages behind a window are removed from the very table that was handed out."
KILLS = "generation"


def _in_place(state: Any, request: Any, index: int, first: int) -> None:
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    table = request.tables[index]
    own = table[max(since, request.shared_pages) : first].copy()
    state.pools[Tier.DEVICE][index].give_back(own[own >= 0])
    table.flags.writeable = True
    table[since:first] = -1
    table.flags.writeable = False


def plant(patch: Patch) -> None:
    patch(windows, "_clear", _in_place)
