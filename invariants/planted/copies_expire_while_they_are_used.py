"""Planted in `expiry._due`: see TITLE."""

from __future__ import annotations

from heapq import heappop
from typing import Any

from hicache.core.wants import expiry

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A node expires by the time at which it was filed, whatever used it since."
KILLS = "expired"
WANTED = True


def _by_filing(state: Any, tick: int) -> list[Any]:
    found = []
    while state.unused and state.unused[0][0] <= tick:
        node = heappop(state.unused)[2]
        if node.parent is not None:
            found.append(node)
    return found


def plant(patch: Patch) -> None:
    patch(expiry, "_due", _by_filing)
