"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("G9",)
TITLE = "Nodes inserted by a prompt chunk count no use, so long prompts are never backed up."
KILLS = "lru"

_grow = insertion._grow


def _count_nothing(
    state: Any, request: Any, path: list[Any], key: Any, upto: int, made: Any
) -> None:
    before = len(path)
    _grow(state, request, path, key, upto, made)
    for node in path[before:]:
        node.hits = 0


def plant(patch: Patch) -> None:
    patch(insertion, "_grow", _count_nothing)
