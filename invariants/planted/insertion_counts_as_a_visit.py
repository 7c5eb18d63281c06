"""Planted in `marks.mark_new`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The request that inserts a node counts as one that visits it."
KILLS = "lru"
EVICTION = "sieve"
COMPONENTS = ("full",)


_mark_new = marks.mark_new


def _visited(state: Any, node: Any) -> None:
    _mark_new(state, node)
    node.marks.visits = [1] * len(state.components)


def plant(patch: Patch) -> None:
    patch(marks, "mark_new", _visited)
