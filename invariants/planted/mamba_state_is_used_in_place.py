"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import tables

from .base import Patch

ROWS: tuple[str, ...] = ("M3",)
TITLE = "The working state of a request is the slot of the cached state, not a copy of it."
KILLS = ""

_states = tables.state_slots


def _in_place(state: Any, request: Any, flight: Any = None) -> Any:
    return tuple(
        one._replace(working=one.source) if one.source >= 0 else one
        for one in _states(state, request, flight)
    )


def plant(patch: Patch) -> None:
    patch(tables, "state_slots", _in_place)
