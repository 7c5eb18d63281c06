"""Planted in `expiry.time_passed`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction import delete, delete_dead
from hicache.core.wants import expiry

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A node that was in use when it was due is never looked at again."
KILLS = "expired"
WANTED = True


_due = expiry._due


def _once(state: Any, event: Any) -> None:
    state.period_ticks.append(state.tick)
    if len(state.period_ticks) <= state.config.ttl_periods:
        return
    due = _due(state, state.period_ticks.pop(0))
    for node in sorted(due, key=lambda node: -node.end_page):
        if not (node.children or node.legs or any(map(any, node.locks))):
            delete(state, node)
    delete_dead(state)


def plant(patch: Patch) -> None:
    patch(expiry, "time_passed", _once)
