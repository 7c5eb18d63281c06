"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion
from hicache.core.requests import windows

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Pages that a window has passed are removed from the table and never freed."
KILLS = "own-d"


def _forget(state: Any, request: Any, index: int, gaps: Any) -> None:
    del state
    table = request.tables[index].copy()
    for gap in gaps:
        table[gap] = -1
    table.flags.writeable = False
    request.tables[index] = table


def _clear(state: Any, request: Any, index: int, first: int) -> None:
    request.cleared_pages[index] = first
    _forget(state, request, index, [slice(0, first)])


def plant(patch: Patch) -> None:
    patch(insertion, "_give_back_at", _forget)
    patch(windows, "_clear", _clear)
