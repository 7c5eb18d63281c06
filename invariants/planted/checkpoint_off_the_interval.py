"""Planted in `checkpoints.interval_of`: the depth is rounded to the page."""

from __future__ import annotations

from typing import Any

from hicache.core import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("E11",)
TITLE = "States are left at every page, where only every interval can be a boundary."
KILLS = "lru"


def _page(state: Any) -> int:
    return int(state.config.page_size)


def plant(patch: Patch) -> None:
    patch(checkpoints, "interval_of", _page)
