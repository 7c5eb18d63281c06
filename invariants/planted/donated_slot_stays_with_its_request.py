"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("M4",)
TITLE = "A request keeps the slot of a state that it has donated to a node."
KILLS = "own-d"

_donate = insertion._donate


def _keep_it(state: Any, request: Any, path: list[Any], made: Any) -> None:
    tables = list(request.tables)
    _donate(state, request, path, made)
    request.tables[:] = tables


def plant(patch: Patch) -> None:
    patch(insertion, "_donate", _keep_it)
