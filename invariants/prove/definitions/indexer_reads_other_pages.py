"""Planted in `PagedRows.read`: indexer keys are read backwards through the table."""

from __future__ import annotations

from typing import Any

from hicache.transformers import rows

from ...planted.base import Patch

TITLE = "The keys of the indexer are read from the pages of other positions."
FAMILIES: tuple[str, ...] = ("deepseek-v32",)

_read = rows.PagedRows.read


def _backwards(self: Any, layer: Any, one: Any, pages: Any, first: int, end: int) -> Any:
    if one.name == "indexer":
        whole = end // self._page_size
        pages = pages.clone()
        pages[:whole] = pages[:whole].flip(0)
    return _read(self, layer, one, pages, first, end)


def plant(patch: Patch) -> None:
    patch(rows.PagedRows, "read", _backwards)
