"""Planted in `placement._reused`: host page numbers are used as device pages."""

from __future__ import annotations

from typing import Any

from hicache.core import placement

from .base import Patch

ROWS: tuple[str, ...] = ("E14",)
TITLE = "A state that is loaded for a request is read from a page that the load does not write."
KILLS = ""

_reused = placement._reused


def _host_numbers(state: Any, plan: Any, index: int, target: Any) -> Any:
    pages = _reused(state, plan, index, target)
    if state.components[index].positional or not len(target):
        return pages
    capacity = state.pools[0][index].capacity
    return placement._host_pages(plan.path[-1], index) % capacity


def plant(patch: Patch) -> None:
    patch(placement, "_reused", _host_numbers)
