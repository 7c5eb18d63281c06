"""Planted in `marks._set_cost`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The cost of computing a page again does not grow with its depth."
KILLS = "lru"
EVICTION = "cost_aware"
COMPONENTS = ("full",)


def _flat(state: Any, node: Any) -> None:
    node.marks.cost = [state.config.recompute_token_cost] * len(state.components)


def plant(patch: Patch) -> None:
    patch(marks, "_set_cost", _flat)
