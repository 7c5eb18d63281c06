"""Planted in `PagedRows.write`: rows behind the last whole page are left out."""

from __future__ import annotations

from typing import Any

from hicache.transformers import rows

from ...planted.base import Patch

TITLE = "The tokens behind the last whole page are not in any page."
FAMILIES: tuple[str, ...] = ("llama", "deepseek-v3", "draft")

_write = rows.PagedRows.write


def _whole(self: Any, layer: Any, one: Any, pages: Any, first: int, new: Any) -> None:
    per_page = self._of(layer, one).shape[2]
    whole = (first + len(new)) // per_page * per_page
    _write(self, layer, one, pages, first, new[: max(0, whole - first)])


def plant(patch: Patch) -> None:
    patch(rows.PagedRows, "write", _whole)
