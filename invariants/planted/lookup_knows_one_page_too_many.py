"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Lookup
from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A lookup claims that the tree has one page more than it has."
KILLS = "len-eq"

_begin_prefetch = prefetch.begin_prefetch


def _knows_more(state: Any, request: Any, again: bool = False) -> None:
    told = len(state.out)
    _begin_prefetch(state, request, again)
    for at in range(told, len(state.out)):
        item = state.out[at]
        if type(item) is Lookup:
            state.out[at] = item._replace(known_pages=item.known_pages + 1)


def plant(patch: Patch) -> None:
    patch(prefetch, "begin_prefetch", _knows_more)
