"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("K2",)
TITLE = "A hit refreshes every state on its path, not only the one that it copies."
KILLS = "lru"

_use = insertion.use


def _warm_states(state: Any, request: Any, path: list[Any], made: Any = ()) -> None:
    _use(state, request, path, made)
    for node in path:
        for index, component in enumerate(state.components):
            if not component.positional:
                node.last_use[index] = state.tick


def plant(patch: Patch) -> None:
    patch(insertion, "use", _warm_states)
