"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Lookup
from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A lookup asks for one page of a window, however long the window is."
KILLS = "len-eq"
COMPONENTS = ("full", "swa")

_begin_prefetch = prefetch.begin_prefetch


def _last_page_only(state: Any, request: Any, again: bool = False) -> None:
    told = len(state.out)
    _begin_prefetch(state, request, again)
    for at in range(told, len(state.out)):
        item = state.out[at]
        if type(item) is Lookup:
            state.out[at] = item._replace(trailing_pages=tuple(map(bool, item.trailing_pages)))


def plant(patch: Patch) -> None:
    patch(prefetch, "begin_prefetch", _last_page_only)
