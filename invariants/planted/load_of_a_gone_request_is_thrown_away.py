"""Planted in `transfers.land`: without its request, a load frees what it has brought."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The pages of a load whose request was aborted are freed when they arrive, not cached."
KILLS = "copy-once"

_land = transfers.land


def _throw_away(state: Any, flight: Any) -> None:
    if flight.request in state.requests:
        _land(state, flight)
    else:
        transfers.cancel_load(state, flight)


def plant(patch: Patch) -> None:
    patch(transfers, "land", _throw_away)
