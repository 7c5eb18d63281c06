"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import fetched

from .base import Patch

ROWS = ("H3",)
TITLE = "A fetch that came short is published up to where it came, boundary or not."
KILLS = "fault-soft"
FAULTS = ("half of it",)
COMPONENTS = ("full", "swa")

_land = fetched._land


def _up_to_there(state: Any, flight: Any, pages: int, owner: Any) -> int:
    whole, flight.digests = flight.digests, flight.digests[:pages] if pages else flight.digests
    published = _land(state, flight, pages, owner)
    flight.digests = whole
    return published


def plant(patch: Patch) -> None:
    patch(fetched, "_land", _up_to_there)
    patch(fetched, "_can_end", lambda state, flight, upto: True)
