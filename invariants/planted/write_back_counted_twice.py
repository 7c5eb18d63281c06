"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("J7",)
TITLE = "Pages that an eviction waits for are counted twice until they are copied."
KILLS = "live-evict"
EXCUSES = (Reason.SEVERAL_COMPONENTS,)

_begin_backup = backup.begin_backup


def _count_again(state: Any, nodes: list[Any], asked: int = -1, pages: int = 0) -> bool:
    begun = _begin_backup(state, nodes, asked, pages)
    if begun and asked >= 0:
        state.writing_back[asked] += pages
    return begun


def plant(patch: Patch) -> None:
    patch(backup, "begin_backup", _count_again)
