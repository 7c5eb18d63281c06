"""Planted in `eviction.make_host_room`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A backup evicts one host page more than it needs."
KILLS = "evict-min"
EXCUSES = (Reason.EVICTED_FROM_HOST,)

_make_host_room = eviction.make_host_room


def _one_more(state: Any, index: int, count: int) -> bool:
    _make_host_room(state, index, count + 1)
    return _make_host_room(state, index, count)


def plant(patch: Patch) -> None:
    patch(eviction, "make_host_room", _one_more)
