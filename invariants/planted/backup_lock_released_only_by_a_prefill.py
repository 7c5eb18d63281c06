"""Planted in `backup.land_backup` and `flights.close_flight`: a decode never releases them."""

from __future__ import annotations

from typing import Any

from hicache.core import backup, flights
from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("B6",)
TITLE = "Locks of backups are released only when a prefill ends."
KILLS = "lock-bal"

_land_backup, _close_flight = backup.land_backup, flights.close_flight


def plant(patch: Patch) -> None:
    parked: list[tuple[Any, Any]] = []

    def park(state: Any, flight: Any, ok: bool) -> None:
        if flight.receipt is not None:
            parked.append((state, flight.receipt))
        flight.receipt = None
        _land_backup(state, flight, ok)

    def unpark(state: Any, flight: Any) -> None:
        _close_flight(state, flight)
        if flight.kind == "prefill":
            for of, receipt in parked:
                if of is state:
                    locks.release(state, receipt)
            parked.clear()

    patch(backup, "land_backup", park)
    patch(flights, "close_flight", unpark)
