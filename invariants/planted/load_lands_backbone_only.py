"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "When a load is done, only the pages of full attention become pages of nodes."
KILLS = "all-or-clamp"

_attach = tree.attach


def _backbone_only(state: Any, node: Any, tier: int, index: int, pages: Any) -> None:
    if index:
        state.pools[tier][index].give_back(pages)
    else:
        _attach(state, node, tier, index, pages)


def plant(patch: Patch) -> None:
    patch(tree, "attach", _backbone_only)
