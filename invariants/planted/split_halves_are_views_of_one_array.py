"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.components.full import Full
from hicache.core.components.swa import SlidingWindow

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The halves of a split node are views, so a small half keeps the whole array in memory."
KILLS = "rss-bound"


def _views(self: Any, pages: Any, at: int) -> tuple[Any, Any]:
    return pages[:at], pages[at:]


def plant(patch: Patch) -> None:
    patch(Full, "split", _views)
    patch(SlidingWindow, "split", _views)
