"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement

from .base import Patch

ROWS: tuple[str, ...] = ("M3",)
TITLE = "A working state is taken before it is known whether admission succeeds."
KILLS = "pool-sum"

_make_room = placement._make_room


def _take_too_early(state: Any, plan: Any) -> int:
    short = _make_room(state, plan)
    for index, component in enumerate(state.components):
        if short >= 0 and not component.positional and state.pools[0][index].free:
            state.pools[0][index].take(1, 0)
    return short


def plant(patch: Patch) -> None:
    patch(placement, "_make_room", _take_too_early)
