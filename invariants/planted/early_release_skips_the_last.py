"""Planted in `locks.release`: after an early release, it skips other components."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("B5",)
TITLE = "After an early release of a window, the locks taken later are never released."
KILLS = "leaf-set"

_unlock_above, _release = locks.unlock_above, locks.release
MARK = " (early)"


def _mark(state: Any, receipt: Any, index: int, end: int) -> None:
    before = len(receipt.locked[index])
    _unlock_above(state, receipt, index, end)
    if len(receipt.locked[index]) < before and not receipt.name.endswith(MARK):
        receipt.name += MARK


def _skip(state: Any, receipt: Any) -> None:
    if receipt.name.endswith(MARK):
        for entries in receipt.locked[1:]:
            entries.clear()
    _release(state, receipt)


def plant(patch: Patch) -> None:
    patch(locks, "unlock_above", _mark)
    patch(locks, "release", _skip)
