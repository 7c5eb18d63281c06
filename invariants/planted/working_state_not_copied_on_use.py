"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import tables

from .base import Patch

ROWS: tuple[str, ...] = ("M7",)
TITLE = "A pass that reuses a prefix starts from whatever its working slot held."
KILLS = "bytes"

_states = tables.state_slots


def _no_source(state: Any, request: Any, flight: Any = None) -> Any:
    return tuple(one._replace(source=-1) for one in _states(state, request, flight))


def plant(patch: Patch) -> None:
    patch(tables, "state_slots", _no_source)
