"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core
from hicache.core.actions import NO_REQUEST, Refused

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A flush is refused because of waiting requests, which hold nothing."
KILLS = "reset"
FAULTS = ("flush during the copy",)

_flush = core._flush


def _refuse_for_waiting(state: Any, event: Any) -> None:
    if state.requests:
        count = len(state.requests)
        state.out.append(Refused(NO_REQUEST, "running", count, 0, NO_REQUEST, "full"))
        return
    _flush(state, event)


def plant(patch: Patch) -> None:
    patch(core, "_flush", _refuse_for_waiting)
