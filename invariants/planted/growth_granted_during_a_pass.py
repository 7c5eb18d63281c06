"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request is granted pages while a pass of it runs."
KILLS = ""
FAULTS = ("growth in flight",)

_want_pages = admission.want_pages


def _blindly(state: Any, event: Any) -> None:
    request = state.running.get(event.request)
    flight = request.prefill if request is not None else 0
    if not flight:
        _want_pages(state, event)
        return
    computed, request.prefill, request.computed_tokens = request.computed_tokens, 0, request.length
    try:
        _want_pages(state, event)
    finally:
        request.prefill, request.computed_tokens = flight, computed


def plant(patch: Patch) -> None:
    patch(admission, "want_pages", _blindly)
