"""Planted in `marks.mark_split`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The upper half of a split node loses its visits."
KILLS = "lru"
EVICTION = "sieve"
COMPONENTS = ("full",)


_mark_split = marks.mark_split


def _forget(state: Any, upper: Any, node: Any) -> None:
    _mark_split(state, upper, node)
    upper.marks.visits = [0] * len(state.components)


def plant(patch: Patch) -> None:
    patch(marks, "mark_split", _forget)
