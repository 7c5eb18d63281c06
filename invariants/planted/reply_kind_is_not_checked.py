"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import flights

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A reply is accepted for any kind of flight, a load's for that of a pass."
KILLS = ""
FAULTS = ("reply of another kind",)

_flight_of = flights.flight_of


def _of_any_kind(state: Any, flight_id: int, kind: Any) -> Any:
    flight = state.flights.get(flight_id)
    return flight if flight is not None else _flight_of(state, flight_id, kind)


def plant(patch: Patch) -> None:
    patch(flights, "flight_of", _of_any_kind)
