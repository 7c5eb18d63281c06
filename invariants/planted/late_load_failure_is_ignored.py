"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A load that fails after the pass that reads it has ended is reported to nobody."
KILLS = ""
DELAYS = "steady"
FAULTS = ("load fails after its pass",)

_load_done = core._load_done


def _shrugs(state: Any, event: Any) -> None:
    flight = state.flights.get(event.flight)
    landed = flight is not None and flight.kind == "load" and not flight.legs
    _load_done(state, event._replace(ok=True) if landed else event)


def plant(patch: Patch) -> None:
    patch(core, "_load_done", _shrugs)
