"""Planted in `PagedRows.write`: the keys of the indexer go one row further."""

from __future__ import annotations

from typing import Any

from hicache.transformers import rows

from ...planted.base import Patch

TITLE = "The keys of the indexer are those of the token before."
FAMILIES: tuple[str, ...] = ("deepseek-v32",)

_write = rows.PagedRows.write


def _further(self: Any, layer: Any, one: Any, pages: Any, first: int, new: Any) -> None:
    _write(self, layer, one, pages, first, new.roll(1, 0) if one.name == "indexer" else new)


def plant(patch: Patch) -> None:
    patch(rows.PagedRows, "write", _further)
