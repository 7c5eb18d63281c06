"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A load stays in flight when the pass that read it is done first."
KILLS = ""
FAULTS = (
    "overtaken load",
    "burst",
    "reordered",
    "very late",
    "swizzled clog, passes first",
)

_prefill_done = admission.prefill_done


def _forgets_it(state: Any, event: Any) -> None:
    flight = state.flights.get(event.flight)
    request = state.requests.get(flight.request) if flight is not None else None
    if request is None or not request.load or not event.ok:
        _prefill_done(state, event)
        return
    load, request.load = request.load, 0
    _prefill_done(state, event)
    if request.admitted:
        request.load = load


def plant(patch: Patch) -> None:
    patch(admission, "prefill_done", _forgets_it)
