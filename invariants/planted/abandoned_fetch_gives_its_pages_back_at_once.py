"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix.node import FlightKind
from hicache.core.storage import flights
from hicache.core.types import Tier

from .base import Patch

ROWS = ("C2",)
TITLE = "The host pages of a fetch that nobody waits for are freed while storage writes them."
KILLS = "pool-sum"

_abandon = flights.abandon


def _give_back(state: Any, flight: Any) -> None:
    _abandon(state, flight)
    if flight.kind is FlightKind.FETCH:
        for leg in flight.legs:
            state.pools[Tier.HOST][leg.component].give_back(leg.target)
        flight.legs.clear()


def plant(patch: Patch) -> None:
    patch(flights, "abandon", _give_back)
