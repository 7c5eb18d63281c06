"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import flights

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "One store more than allowed is begun."
KILLS = "stored"

_in_flight = flights.in_flight


def _one_less(state: Any, kind: Any) -> int:
    count = _in_flight(state, kind)
    return count - 1 if kind == "store" else count


def plant(patch: Patch) -> None:
    patch(flights, "in_flight", _one_less)
