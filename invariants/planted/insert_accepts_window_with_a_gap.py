"""Planted in `insertion._has_windows`: it ignores gaps in the window."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion

from .base import Patch

ROWS: tuple[str, ...] = ("E9",)
TITLE = "A boundary is made where the window of the request has a gap."
KILLS = "lru"


def _always(state: Any, request: Any, pages: int) -> bool:
    return True


def plant(patch: Patch) -> None:
    patch(insertion, "_has_windows", _always)
