"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request is retracted while a pass of it runs."
KILLS = ""
FAULTS = ("retract mid-prefill",)

_retract = admission.retract


def _blindly(state: Any, event: Any) -> None:
    request = state.running.get(event.request)
    flight = request.prefill if request is not None else 0
    if flight:
        request.prefill = 0
    try:
        _retract(state, event)
    finally:
        if flight and not request.prefill:
            request.prefill = flight


def plant(patch: Patch) -> None:
    patch(admission, "retract", _blindly)
