"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies.lru import Lru

from .base import Patch

ROWS: tuple[str, ...] = ("K2",)
TITLE = "The most recently used copy is evicted first."
KILLS = "order-ref"


def _newest_first(self: Lru, node: Any, component: int) -> int:
    return -int(node.last_use[component])


def plant(patch: Patch) -> None:
    patch(Lru, "rank", _newest_first)
