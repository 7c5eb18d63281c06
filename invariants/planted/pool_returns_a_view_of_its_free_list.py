"""Planted in `Pool._take`: one copy is missing."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool

from .base import Patch

ROWS: tuple[str, ...] = ("A4",)
TITLE = "Pages are handed out as a live view of the free list, which is rewritten later."
KILLS = "alias"

_take = Pool._take


def _view(self: Pool, count: int, owner: int, state: int) -> Any:
    if not count or count > self._top:
        return _take(self, count, owner, state)
    top = self._top
    self._stack[top - count : top] = _take(self, count, owner, state)
    return self._stack[top - count : top]


def plant(patch: Patch) -> None:
    patch(Pool, "_take", _view)
