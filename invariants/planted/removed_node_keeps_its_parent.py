"""Planted in `tree.unlink`: the link stays, and so does the memory."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ("A10",)
TITLE = "A node that was removed still refers to its parent."
KILLS = ""

_remove = tree.unlink


def _keep(state: Any, node: Any) -> None:
    parent = node.parent
    _remove(state, node)
    node.parent = parent


def plant(patch: Patch) -> None:
    patch(tree, "unlink", _keep)
