"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The next chunk of a prompt is begun while one runs."
KILLS = ""
FAULTS = ("chunk in flight",)

_proceed = admission.proceed


def _blindly(state: Any, event: Any) -> None:
    request = state.running.get(event.request)
    flight = request.prefill if request is not None else 0
    if flight:
        request.prefill = 0
    try:
        _proceed(state, event)
    finally:
        if flight and not request.prefill:
            request.prefill = flight


def plant(patch: Patch) -> None:
    patch(admission, "proceed", _blindly)
