"""Planted in `matching._deepest`: a match looks at its last node only."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import matching

from .base import Patch

ROWS: tuple[str, ...] = ("E5",)
TITLE = "A match ends where the window has a gap."
KILLS = "match-ref"

_deepest = matching._deepest


def _not_reset(path: Any, ends: Any, upto: int, index: int, window: int, on_device: bool) -> int:
    if not index or window == 1:
        return _deepest(path, ends, upto, index, window, on_device)
    while upto:
        node = path[upto - 1]
        if node.pages[0][index] is not None or not (on_device or node.pages[1][index] is None):
            return upto
        upto -= 1
    return upto


def plant(patch: Patch) -> None:
    patch(matching, "_deepest", _not_reset)
