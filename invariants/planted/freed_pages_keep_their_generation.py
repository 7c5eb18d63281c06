"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.ledger import Pool

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The generation of a page does not change when the page becomes free."
KILLS = "generation"

_give_back = Pool.give_back


def _same_generation(self: Pool, pages: Any) -> None:
    before = self.generation.copy()
    _give_back(self, pages)
    self.generation[:] = before


def plant(patch: Patch) -> None:
    patch(Pool, "give_back", _same_generation)
