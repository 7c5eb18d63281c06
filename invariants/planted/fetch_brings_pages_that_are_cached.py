"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A fetch brings every page up to its end, also those that the tree has."
KILLS = "len-eq"

_missing_runs = prefetch.missing_runs


def _all_from_the_first(state: Any, known: Any, end: int) -> Any:
    runs = _missing_runs(state, known, end)
    if runs[0] and known.depth and runs[0][0][0] == known.depth:
        runs[0][0] = (max(0, runs[0][0][0] - 1), runs[0][0][1])
    return runs


def plant(patch: Patch) -> None:
    patch(prefetch, "missing_runs", _all_from_the_first)
