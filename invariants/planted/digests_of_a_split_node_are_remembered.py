"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS = ("H9",)
TITLE = "The digests of a node are remembered, and used again after a split."
KILLS = ""

_digests_of = tree.digests_of


def plant(patch: Patch) -> None:
    known: dict[Any, tuple[bytes, ...]] = {}

    def remembered(state: Any, node: Any) -> tuple[bytes, ...]:
        found = known.setdefault(node, _digests_of(state, node))
        count = len(node.key) // state.stride
        return found[:count]

    patch(tree, "digests_of", remembered)
