"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim

from .base import Patch

ROWS: tuple[str, ...] = ("J9",)
TITLE = "An eviction of a single page looks at every node."
KILLS = "work-bound"

_evict_device = reclaim.evict_device


def _visit_all(state: Any, index: int, count: int) -> None:
    stack = list(state.root.children.values())
    for node in stack:
        state.touched[node.id] = node
        stack.extend(node.children.values())
    _evict_device(state, index, count)


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _visit_all)
