"""Planted in `lru.kind_now`: children on host do not count."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ("F3",)
TITLE = "A node that has children on host is dropped as if it were a leaf."
KILLS = "parent-bk"

_kind_now = lru.kind_now


def _childless(node: Any, tier: int, component: int) -> int:
    kept = node.with_pages
    node.with_pages = (node.with_pages[0], 0)
    try:
        return _kind_now(node, tier, component)
    finally:
        node.with_pages = kept


def plant(patch: Patch) -> None:
    patch(lru, "kind_now", _childless)
