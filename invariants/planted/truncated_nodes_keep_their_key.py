"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A truncated node keeps the key of the pages that it lost."
KILLS = "tree-link"

_truncate = tree.truncate


def _keep_key(state: Any, node: Any, tier: int, keep: int) -> Any:
    key = node.key
    pages = _truncate(state, node, tier, keep)
    node.key = key
    return pages


def plant(patch: Patch) -> None:
    patch(tree, "truncate", _keep_key)
