"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The reply to a backup does not end its flight."
KILLS = "live-ack"

_backup_done = core._backup_done


def _keep_flight(state: Any, event: Any) -> None:
    flight = state.flights.get(event.flight)
    _backup_done(state, event)
    if flight is not None:
        flight.legs, flight.receipt = [], None
        state.flights[flight.id] = flight


def plant(patch: Patch) -> None:
    patch(core, "_backup_done", _keep_flight)
