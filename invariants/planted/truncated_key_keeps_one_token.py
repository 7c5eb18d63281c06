"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The key of a truncated node keeps the first token of what was cut off."
KILLS = "tree-link"
WORD = 8

_truncate = tree.truncate


def _a_word_more(state: Any, node: Any, tier: int, keep: int) -> Any:
    key = node.key
    pages = _truncate(state, node, tier, keep)
    node.key = key[: keep * state.stride + WORD]
    return pages


def plant(patch: Patch) -> None:
    patch(tree, "truncate", _a_word_more)
