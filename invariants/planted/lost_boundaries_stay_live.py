"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import boundaries

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A boundary that has lost its window or state still counts as live."
KILLS = "near"

_changed = boundaries.changed


def _only_births(state: Any, node: Any, index: int) -> None:
    if boundaries.is_there(node, index):
        _changed(state, node, index)


def plant(patch: Patch) -> None:
    patch(boundaries, "changed", _only_births)
