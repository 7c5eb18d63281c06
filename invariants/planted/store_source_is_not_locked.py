"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix.locks import release
from hicache.core.storage import stores

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A store does not lock the host copies that it reads."
KILLS = "lock-bal"

_begin_store = stores._begin_store


def plant(patch: Patch) -> None:
    def begin(state: Any, node: Any, wanted: Any) -> None:
        _begin_store(state, node, wanted)
        flight = next(reversed(state.storage_flights.values()))
        release(state, flight.receipt)

    patch(stores, "_begin_store", begin)
