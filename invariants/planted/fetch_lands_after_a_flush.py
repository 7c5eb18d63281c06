"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix.locks import open_receipt
from hicache.core.storage import fetched

from .base import Patch

ROWS = ("C14",)
TITLE = "A fetch that began before a flush is put into the tree after it."
KILLS = "whole-fetch"
FAULTS = ("storage flushed",)

_land = fetched._land


def _all_the_same(state: Any, flight: Any, pages: int, owner: Any) -> int:
    if flight.receipt is None:
        flight.receipt = open_receipt(state, f"fetch {flight.id}", True)
    return _land(state, flight, pages, owner)


def plant(patch: Patch) -> None:
    patch(fetched, "_land", _all_the_same)
