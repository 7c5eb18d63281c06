"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission, core

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A reply to a flight below the last one answered counts as taken already."
KILLS = ""
FAULTS = (
    "late",
    "very late",
    "burst",
    "reordered",
    "bunched",
    "engine stall",
    "overtaken load",
    "lost",
    "clog",
    "swizzled clog",
    "swizzled clog, passes first",
)

_ANSWERED: dict[int, int] = {}


def _above(real: Any) -> Any:
    def handle(state: Any, event: Any) -> None:
        if event.flight in state.flights and event.flight < _ANSWERED.get(id(state), 0):
            return
        real(state, event)
        _ANSWERED.clear()
        _ANSWERED[id(state)] = event.flight

    return handle


def plant(patch: Patch) -> None:
    _ANSWERED.clear()
    for owner, name in ((core, "_load_done"), (core, "_backup_done"), (admission, "prefill_done")):
        patch(owner, name, _above(getattr(owner, name)))
