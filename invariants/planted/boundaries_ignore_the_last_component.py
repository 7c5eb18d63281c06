"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import boundaries

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A boundary counts as live although the last component is not there."
KILLS = "near"


def _all_but_one(state: Any, node: Any) -> bool:
    for index, component in enumerate(state.components[:-1]):
        above = node
        while (
            node.end_page - above.end_page < component.window_pages
            and above.parent is not None
            and index
        ):
            if not boundaries.is_there(above, index):
                return False
            above = above.parent
    return True


def plant(patch: Patch) -> None:
    patch(boundaries, "is_live", _all_but_one)
