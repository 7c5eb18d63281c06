"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import flights

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A table of passes has four places: the fifth pass takes the place of the first."
KILLS = ""
FAULTS = (
    "lost",
    "stale poll",
    "clog",
)

PLACES = 4
_open_flight = flights.open_flight


def _wraps(state: Any, kind: Any, *request: int) -> Any:
    passes = [one for one in state.flights.values() if one.kind == kind == "prefill"]
    if len(passes) >= PLACES:
        del state.flights[passes[0].id]
    return _open_flight(state, kind, *request)


def plant(patch: Patch) -> None:
    patch(flights, "open_flight", _wraps)
