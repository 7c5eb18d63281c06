"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A window or state whose last lock ends is in no eviction queue."
KILLS = "dlru"

_offer = lru.offer


def _backbone_only(queues: list[Any], policy: Any, node: Any, tier: int, index: int) -> None:
    if not index or tier:
        _offer(queues, policy, node, tier, index)


def plant(patch: Patch) -> None:
    patch(lru, "offer", _backbone_only)
