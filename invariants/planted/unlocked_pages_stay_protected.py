"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A page whose last lock ends still counts as protected."
KILLS = "pool-sum"

_release = locks.release


def _still_protected(state: Any, receipt: Any) -> None:
    first = next((one for one in receipt.locked[0]), None)
    alone = first is not None and len(first[0].locks[first[1]][0]) == 1
    _release(state, receipt)
    if alone and first is not None:
        state.pools[first[1]][0].protected += 1


def plant(patch: Patch) -> None:
    patch(locks, "release", _still_protected)
