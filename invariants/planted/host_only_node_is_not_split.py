"""Planted in `matching.walk`: only nodes on device are split."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import matching

from .base import Patch

ROWS: tuple[str, ...] = ("E3",)
TITLE = "A match that ends inside a node on host only stops before that node."
KILLS = "match-ref"

_walk = matching.walk


def _stop(state: Any, key: Any, limit: int, known: Any = None) -> Any:
    path, partial, pages = _walk(state, key, limit, known)
    if partial is not None and partial.pages[0][0] is None:
        return path, None, 0
    return path, partial, pages


def plant(patch: Patch) -> None:
    patch(matching, "walk", _stop)
