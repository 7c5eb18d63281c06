"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("K1",)
TITLE = "Admission on cached pages does not count as a use of them."
KILLS = "lru"

_use = insertion.use


def _only_inserts(state: Any, request: Any, path: list[Any], made: Any = ()) -> None:
    before = [node.last_use.copy() for node in path]
    _use(state, request, path, made)
    if not made:
        for node, last in zip(path, before, strict=True):
            node.last_use[:] = last


def plant(patch: Patch) -> None:
    patch(insertion, "use", _only_inserts)
