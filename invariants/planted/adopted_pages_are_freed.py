"""Planted in `insertion._share`: pages that a node adopted count as duplicates."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("A16",)
TITLE = "Pages that a node has just adopted are freed by the request that had computed them."
KILLS = "own-d"

_share = insertion._share


def _free_adopted(state: Any, request: Any, path: Any) -> None:
    behind = [
        node for node in path if node.end_page > request.shared_pages and node.pages[0][0] is None
    ]
    _share(state, request, path)
    for node in behind:
        state.pools[0][0].give_back(node.pages[0][0])


def plant(patch: Patch) -> None:
    patch(insertion, "_share", _free_adopted)
