"""Planted in `lru.kind_now`: one lock count for all components of a node."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ("B8",)
TITLE = "No host copy of a node can be evicted while any component of it is locked there."
KILLS = "hlru"

_kind_now = lru.kind_now


def _shared_counter(node: Any, tier: int, component: int) -> int:
    return -1 if tier == 1 and any(node.locks[1]) else _kind_now(node, tier, component)


def plant(patch: Patch) -> None:
    patch(lru, "kind_now", _shared_counter)
