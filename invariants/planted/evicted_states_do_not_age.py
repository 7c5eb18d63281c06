"""Planted in `marks.note_eviction`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What is evicted moves the hand of full attention only, and not that of states."
KILLS = "lru"
EVICTION = "sieve"
COMPONENTS = ("full", "mamba")


_note_eviction = marks.note_eviction


def _of_full(state: Any, node: Any, index: int) -> None:
    if index == 0:
        _note_eviction(state, node, index)


def plant(patch: Patch) -> None:
    patch(marks, "note_eviction", _of_full)
