"""Planted in `marks.note_eviction`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What is evicted moves no hand, so a second visit counts like the first."
KILLS = "lru"
EVICTION = "sieve"
COMPONENTS = ("full",)


def _stand_still(state: Any, node: Any, index: int) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(marks, "note_eviction", _stand_still)
