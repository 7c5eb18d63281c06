"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Prefetches begin although the budget is used up."
KILLS = "pref-acc"


def _always(state: Any) -> int:
    return 1 << 40


def plant(patch: Patch) -> None:
    patch(prefetch, "_budget_left", _always)
