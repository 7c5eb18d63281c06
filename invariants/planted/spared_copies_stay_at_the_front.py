"""Planted in `marks._spare`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy that is spared loses its chances, and keeps its place in the queue."
KILLS = "second-chance"
EVICTION = "s3_fifo"
COMPONENTS = ("full",)


_spare = marks._spare


def _stay(state: Any, node: Any, index: int) -> bool:
    place = node.marks.place[index]
    spared = _spare(state, node, index)
    node.marks.place[index] = place
    return spared


def plant(patch: Patch) -> None:
    patch(marks, "_spare", _stay)
