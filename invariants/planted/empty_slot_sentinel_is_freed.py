"""Planted in `tables.own_pages`: -1 is not filtered out."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import tables

from .base import Patch

ROWS: tuple[str, ...] = ("A12",)
TITLE = "The -1 of an empty slot is given back like a page."
KILLS = ""


def _own_pages(state: Any, request: Any, index: int) -> Any:
    pages = request.tables[index]
    return pages[request.shared_pages :] if state.components[index].positional else pages


def plant(patch: Patch) -> None:
    patch(tables, "own_pages", _own_pages)
