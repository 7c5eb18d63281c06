"""Planted in `locks.unlock_above`: it also removes locks of other requests."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("B3",)
TITLE = "The early release of a window releases locks that the request never held."
KILLS = "dlru"

_unlock_above = locks.unlock_above


def _skip_nothing(state: Any, receipt: Any, index: int, end: int) -> None:
    _unlock_above(state, receipt, index, end)
    for node, tier in receipt.locked[0]:
        holders = node.locks[tier][index]
        if tier == 0 and node.end_page <= end and len(holders) == 1:
            holders.clear()
            state.pools[0][index].protected -= len(node.pages[0][index])
            state.touched[node.id] = node


def plant(patch: Patch) -> None:
    patch(locks, "unlock_above", _skip_nothing)
