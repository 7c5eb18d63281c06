"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import tree

from .base import Patch

ROWS: tuple[str, ...] = ("G2",)
TITLE = "The upper half of a cut node counts no use, so nothing below it is ever backed up."
KILLS = ""

_split = tree.split


def _forget_hits(state: Any, node: Any, at: int) -> Any:
    upper = _split(state, node, at)
    upper.hits = 0
    return upper


def plant(patch: Patch) -> None:
    patch(tree, "split", _forget_hits)
