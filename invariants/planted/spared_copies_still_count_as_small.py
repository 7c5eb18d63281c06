"""Planted in `marks._spare`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy that goes to the main queue still counts among the pages of the small one."
KILLS = "second-chance"
EVICTION = "s3_fifo"
COMPONENTS = ("full",)


_spare = marks._spare


def _miscount(state: Any, node: Any, index: int) -> bool:
    small = state.chances[index].small_pages
    spared = _spare(state, node, index)
    state.chances[index].small_pages = small
    return spared


def plant(patch: Patch) -> None:
    patch(marks, "_spare", _miscount)
