"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Aborting a request releases what its pass still reads."
KILLS = "lock-bal"

_orphan_flights = transfers.orphan_flights


def _released(state: Any, request: Any) -> bool:
    if _orphan_flights(state, request):
        state.flights[request.prefill].receipt = None
    return False


def plant(patch: Patch) -> None:
    patch(transfers, "orphan_flights", _released)
