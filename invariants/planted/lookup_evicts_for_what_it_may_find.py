"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Lookup
from hicache.core.eviction import make_host_room
from hicache.core.storage import prefetch

from .base import Patch

ROWS = ("H14",)
TITLE = "Host pages are evicted when a lookup begins, before storage has said that it has anything."
KILLS = "match-ref"

_begin_prefetch = prefetch.begin_prefetch


def _with_room(state: Any, request: Any, again: bool = False) -> None:
    told = len(state.out)
    _begin_prefetch(state, request, again)
    asked = [item for item in state.out[told:] if type(item) is Lookup]
    if asked:
        make_host_room(state, 0, len(asked[0].digests))


def plant(patch: Patch) -> None:
    patch(prefetch, "begin_prefetch", _with_room)
