"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.actions import Admitted

from .base import Patch

ROWS: tuple[str, ...] = ("L4",)
TITLE = "A prefix found on device is counted once more as found on host."
KILLS = "metric-ref"

_take_pages = placement._take_pages


def _count_twice(state: Any, request: Any, plan: Any) -> None:
    item = state.out[-1]
    if type(item) is Admitted:
        pages = item.host_pages + item.device_pages
        state.out[-1] = item._replace(host_pages=pages)
    _take_pages(state, request, plan)


def plant(patch: Patch) -> None:
    patch(placement, "_take_pages", _count_twice)
