"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ("G5",)
TITLE = "Host copies of pages on device count as room, and are never reclaimed for it."
KILLS = "live-evict"

_next_victim = lru.next_victim


def _no_duplicates(queues: list[Any], policy: Any) -> Any:
    return _next_victim([one for one in queues if one.kind != lru.DUPLICATE], policy)


def plant(patch: Patch) -> None:
    patch(lru, "next_victim", _no_duplicates)
