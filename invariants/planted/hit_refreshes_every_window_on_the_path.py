"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("K1",)
TITLE = "A hit refreshes the windows of the whole path, not only the one that it uses."
KILLS = "lru"

_use = insertion.use


def _warm_windows(state: Any, request: Any, path: list[Any], made: Any = ()) -> None:
    _use(state, request, path, made)
    for node in path:
        for index, component in enumerate(state.components):
            if index and component.positional:
                node.last_use[index] = state.tick


def plant(patch: Patch) -> None:
    patch(insertion, "use", _warm_windows)
