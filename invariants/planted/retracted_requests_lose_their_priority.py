"""Planted in `admission`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request that was retracted waits again without its priority."
KILLS = "lru"
EVICTION = "priority"

_retract = admission.retract


def _forget(state: Any, event: Any) -> None:
    _retract(state, event)
    state.requests[event.request].priority = 0


def plant(patch: Patch) -> None:
    patch(admission, "retract", _forget)
