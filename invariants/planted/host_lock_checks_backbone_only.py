"""Planted in `lru.kind_now`: the backbone's locks stand for those of every host copy."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import lru

from .base import Patch

ROWS: tuple[str, ...] = ("B8",)
TITLE = "A host copy counts as unlocked although another component of its node is locked."
KILLS = "hlru"

_kind_now = lru.kind_now


def _shared_counter(node: Any, tier: int, component: int) -> int:
    if tier == 1 and component and node.pages[1][component] is not None:
        free = node.parent is not None and not node.locks[1][0]
        here = lru.HOST if node.pages[0][component] is None else lru.DUPLICATE
        return here if free else -1
    return _kind_now(node, tier, component)


def plant(patch: Patch) -> None:
    patch(lru, "kind_now", _shared_counter)
