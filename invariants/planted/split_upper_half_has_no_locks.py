"""Planted in `tree.split`: locks do not follow their pages."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The upper half of a node that is split has no locks."
KILLS = "lock-bal"

_split = tree.split


def _unlocked(state: Any, node: Any, at: int) -> Any:
    upper = _split(state, node, at)
    for tier in (0, 1):
        upper.locks[tier][0].clear()
    return upper


def plant(patch: Patch) -> None:
    patch(tree, "split", _unlocked)
