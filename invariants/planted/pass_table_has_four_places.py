"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

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
_open_flight = transfers.open_flight


def _wraps(state: Any, kind: str, request: Any) -> Any:
    passes = [one for one in state.flights.values() if one.kind == kind == "prefill"]
    if len(passes) >= PLACES:
        del state.flights[passes[0].id]
    return _open_flight(state, kind, request)


def plant(patch: Patch) -> None:
    patch(transfers, "open_flight", _wraps)
