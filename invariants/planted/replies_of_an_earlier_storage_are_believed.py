"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core.radix.node import Flight
from hicache.core.state import State
from hicache.core.storage import fetched, stores

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What was stored before storage was attached again is believed to be stored."
KILLS = "stored"


def _tells(state: State, flight: Flight) -> bool:
    return True


def plant(patch: Patch) -> None:
    patch(stores, "tells", _tells)
    patch(fetched, "tells", _tells)
