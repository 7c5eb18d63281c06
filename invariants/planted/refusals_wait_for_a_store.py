"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import refusals
from hicache.core.storage.flights import oldest

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request that lacks device pages is told to wait for a store."
KILLS = "live-evict"

_reply_that_frees = refusals._reply_that_frees


def _or_storage(state: Any, component: int, needed: int) -> int:
    return _reply_that_frees(state, component, needed) or oldest(state)


def plant(patch: Patch) -> None:
    patch(refusals, "_reply_that_frees", _or_storage)
