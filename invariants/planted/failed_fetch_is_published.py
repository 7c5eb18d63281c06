"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import fetched

from .base import Patch

ROWS = ("C16",)
TITLE = "Pages of a fetch that failed are put into the tree."
KILLS = "bytes"

_land = fetched._land


def _as_if_all_came(state: Any, flight: Any, pages: int, owner: Any) -> int:
    return _land(state, flight, len(flight.digests), owner)


def plant(patch: Patch) -> None:
    patch(fetched, "_land", _as_if_all_came)
