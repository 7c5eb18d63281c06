"""Planted in `windows._clear`: the pages go back, and the table keeps their numbers."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import windows
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("A1",)
TITLE = "Pages behind a window are freed, stay in the table and are freed again with the request."
KILLS = "lock-span"


def _clear(state: Any, request: Any, index: int, first: int) -> None:
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    own = request.tables[index][max(since, request.shared_pages) : first]
    state.pools[Tier.DEVICE][index].give_back(own[own >= 0])


def plant(patch: Patch) -> None:
    patch(windows, "_clear", _clear)
