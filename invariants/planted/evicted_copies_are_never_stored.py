"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS = ("G6",)
TITLE = "A copy that was written back because of an eviction is not stored."
KILLS = "stored"

_backup_done = core._backup_done


def _stored_unless_evicting(state: Any, event: Any) -> None:
    flight, attached = state.flights.get(event.flight), state.attached
    state.attached = attached and not (flight is not None and flight.evicts)
    _backup_done(state, event)
    state.attached = attached


def plant(patch: Patch) -> None:
    patch(core, "_backup_done", _stored_unless_evicting)
