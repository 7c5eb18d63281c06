"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import fetched

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A node that a fetch makes counts as used before everything else."
KILLS = "lru"

_grow = fetched._grow


def _never_used(state: Any, flight: Any, path: Any, *rest: Any) -> bool:
    known = len(path)
    done = _grow(state, flight, path, *rest)
    for node in path[known:]:
        node.last_use = [0] * len(node.last_use)
    return done


def plant(patch: Patch) -> None:
    patch(fetched, "_grow", _never_used)
