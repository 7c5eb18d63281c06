"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A prefetch begins while storage is being deleted."
KILLS = "answers"

_why_not = prefetch._why_not


def _all_the_same(state: Any, asked: int) -> Any:
    reason = _why_not(state, asked)
    return "" if reason == "flushed" else reason


def plant(patch: Patch) -> None:
    patch(prefetch, "_why_not", _all_the_same)
