"""Planted in `insertion._has_windows`: all positions count, not only the window."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("F4",)
TITLE = "A boundary is left out because a page far above its window is a tombstone."
KILLS = "lru"


def _everywhere(state: Any, request: Any, pages: int) -> bool:
    return all(
        index == 0 or not component.positional or bool((request.tables[index][:pages] >= 0).all())
        for index, component in enumerate(state.components)
    )


def plant(patch: Patch) -> None:
    patch(insertion, "_has_windows", _everywhere)
