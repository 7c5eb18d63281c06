"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree
from hicache.core.radix.node import count_child

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A node that loses a child on device is not offered for eviction."
KILLS = "leaf-set"

_detach = tree.detach


def _count_once_more(state: Any, node: Any, tier: int, index: int) -> Any:
    pages = _detach(state, node, tier, index)
    if not index and node.parent is not None and node.parent.parent is not None:
        count_child(node.parent, tier, 1)
    return pages


def plant(patch: Patch) -> None:
    patch(tree, "detach", _count_once_more)
