"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A window or state that arrives on host is in no eviction queue there."
KILLS = "hlru"

_offer = lru.offer


def _not_on_host(queues: list[Any], policy: Any, node: Any, tier: int, index: int) -> None:
    if not index or not tier:
        _offer(queues, policy, node, tier, index)


def plant(patch: Patch) -> None:
    patch(lru, "offer", _not_on_host)
