"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A pass that fails after its request has gone is never cleaned up."
KILLS = ""
FAULTS = ("abort, then it fails",)

_prefill_done = admission.prefill_done


def _looks_away(state: Any, event: Any) -> None:
    flight = state.flights.get(event.flight)
    if event.ok or flight is None or flight.request in state.requests:
        _prefill_done(state, event)


def plant(patch: Patch) -> None:
    patch(admission, "prefill_done", _looks_away)
