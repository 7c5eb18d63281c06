"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A reply is accepted for any kind of flight, a load's for that of a pass."
KILLS = ""
FAULTS = ("reply of another kind",)

_flight_of = transfers.flight_of


def _of_any_kind(state: Any, flight_id: int, kind: str) -> Any:
    flight = state.flights.get(flight_id)
    return flight if flight is not None else _flight_of(state, flight_id, kind)


def plant(patch: Patch) -> None:
    patch(transfers, "flight_of", _of_any_kind)
