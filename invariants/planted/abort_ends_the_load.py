"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import flights, transfers

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Aborting a request ends its load at once, although the copy is still running."
KILLS = ""
FAULTS = (
    "abort while arriving",
    "abort while prefilling",
    "abort before the reply",
    "abort, then it fails",
)

_orphan_flights = transfers.orphan_flights


def _cancelled(state: Any, request: Any) -> bool:
    load = state.flights.get(request.load)
    handed_over = _orphan_flights(state, request)
    if load is not None and load.legs:
        transfers.cancel_load(state, load)
        flights.close_flight(state, load)
    return handed_over


def plant(patch: Patch) -> None:
    patch(transfers, "orphan_flights", _cancelled)
