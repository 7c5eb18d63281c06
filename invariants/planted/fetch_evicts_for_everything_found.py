"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction import make_host_room
from hicache.core.storage import prefetch

from .base import Patch

ROWS = ("H14",)
TITLE = "A fetch makes room for every page that storage has, not only for those that it brings."
KILLS = "evict-min"

_begin_fetch = prefetch._begin_fetch


def _for_all(state: Any, lookup: Any) -> Any:
    fetch, reason = _begin_fetch(state, lookup)
    if fetch is not None:
        make_host_room(state, 0, len(fetch.digests) + 1)
    return fetch, reason


def plant(patch: Patch) -> None:
    patch(prefetch, "_begin_fetch", _for_all)
