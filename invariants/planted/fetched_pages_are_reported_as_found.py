"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import fetched

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request is told that everything was fetched that was found."
KILLS = "whole-fetch"

_land = fetched._land


def _found(state: Any, flight: Any, pages: int, owner: Any) -> int:
    _land(state, flight, pages, owner)
    return int(flight.found_pages)


def plant(patch: Patch) -> None:
    patch(fetched, "_land", _found)
