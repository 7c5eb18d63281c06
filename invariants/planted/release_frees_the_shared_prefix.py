"""Planted in `admission._withdraw`: freeing begins at position 0."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ("A13",)
TITLE = "A request that ends also frees the pages of its shared prefix."
KILLS = "own-d"

_withdraw = admission._withdraw


def _from_the_start(state: Any, request: Any) -> None:
    request.shared_pages = 0
    _withdraw(state, request)


def plant(patch: Patch) -> None:
    patch(admission, "_withdraw", _from_the_start)
