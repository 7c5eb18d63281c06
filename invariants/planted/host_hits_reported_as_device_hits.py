"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.actions import Admitted

from .base import Patch

ROWS: tuple[str, ...] = ("L4",)
TITLE = "What was loaded from host is counted as found on device."
KILLS = "match-ref"

_take_pages = placement._take_pages


def _all_on_device(state: Any, request: Any, plan: Any) -> None:
    item = state.out[-1]
    if type(item) is Admitted:
        hits = item.device_pages + item.host_pages
        state.out[-1] = item._replace(device_pages=hits, host_pages=0)
    _take_pages(state, request, plan)


def plant(patch: Patch) -> None:
    patch(placement, "_take_pages", _all_on_device)
