"""Planted in `insertion._give_back_at`: it frees one page too many."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("E13",)
TITLE = "The window that an insert keeps is one page short."
KILLS = "own-d"

_forget = insertion._give_back_at


def _one_more(state: Any, request: Any, index: int, gaps: Any) -> None:
    _forget(state, request, index, [slice(gap.start, gap.stop + 1) for gap in gaps])


def plant(patch: Patch) -> None:
    patch(insertion, "_give_back_at", _one_more)
