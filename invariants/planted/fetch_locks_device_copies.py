"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix.locks import lock
from hicache.core.storage import prefetch
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A fetch locks the device copies of its path too."
KILLS = "lock-bal"

_begin_fetch = prefetch._begin_fetch


def _both_tiers(state: Any, lookup: Any) -> Any:
    fetch: Any
    fetch, reason = _begin_fetch(state, lookup)
    if fetch is not None:
        path = prefetch.know(state, fetch.key, fetch.key.pages).path
        lock(state, fetch.receipt, path, Tier.DEVICE)
    return fetch, reason


def plant(patch: Patch) -> None:
    patch(prefetch, "_begin_fetch", _both_tiers)
