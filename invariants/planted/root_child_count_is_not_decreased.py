"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree
from hicache.core.radix.node import count_child

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The root still counts a child that has left the tier."
KILLS = "leaf-set"

_detach = tree.detach


def _miscounted(state: Any, node: Any, tier: int, index: int) -> Any:
    parent = node.parent
    pages = _detach(state, node, tier, index)
    if index == 0 and parent is not None and parent.parent is None:
        count_child(parent, tier, 1)
    return pages


def plant(patch: Patch) -> None:
    patch(tree, "detach", _miscounted)
