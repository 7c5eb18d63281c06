"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A prefetch counts against the budget of tokens with its number of pages."
KILLS = "pref-acc"

_begin_prefetch = prefetch.begin_prefetch


def _in_pages(state: Any, request: Any, again: bool = False) -> None:
    _begin_prefetch(state, request, again)
    flight = state.flights.get(request.prefetch)
    if flight is not None:
        flight.budget_tokens = len(flight.digests)


def plant(patch: Patch) -> None:
    patch(prefetch, "begin_prefetch", _in_pages)
