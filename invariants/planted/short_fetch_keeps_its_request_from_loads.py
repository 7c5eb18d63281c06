"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import fetched

from .base import Patch

ROWS = ("C16",)
TITLE = "A request whose fetch came short never loads anything from host."
KILLS = "fault-soft"

_fetch_done = fetched.fetch_done


def _spoil(state: Any, event: Any) -> None:
    flight = state.flights.get(event.flight)
    waiters = list(flight.waiters) if flight is not None else []
    short = flight is not None and event.pages < len(flight.digests)
    _fetch_done(state, event)
    for number in waiters if short else ():
        state.requests[number].may_load = False


def plant(patch: Patch) -> None:
    patch(fetched, "fetch_done", _spoil)
