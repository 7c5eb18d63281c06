"""Planted in `lru.SecondChances.remember`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The ghost remembers every page that was ever evicted out of the small queue."
KILLS = "second-chance"
EVICTION = "s3_fifo"
COMPONENTS = ("full",)


def _hoard(chances: Any) -> None:
    chances.ghost |= dict.fromkeys(chances.buried)
    chances.buried.clear()


def plant(patch: Patch) -> None:
    patch(lru.SecondChances, "remember", _hoard)
