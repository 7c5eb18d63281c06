"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "While a use is copied to host, no page of full attention is evicted."
KILLS = "live-evict"
EXCUSES = (Reason.COLDER_COPY,)

_evict_device = reclaim.evict_device


def _evict(state: Any, index: int, count: int) -> None:
    if index or not state.backups or not state.writes.threshold:
        _evict_device(state, index, count)


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _evict)
