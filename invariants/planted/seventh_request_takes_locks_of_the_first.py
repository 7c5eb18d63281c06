"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The seventh admitted request takes over the locks of the first."
KILLS = ""
FAULTS = ("rival for the same prefix",)

SEATS = 6
_admit = placement._admit


def _unlocking(state: Any, request: Any, plan: Any) -> None:
    if len(state.running) >= SEATS:
        first = next(iter(state.running.values()))
        if first.receipt is not None:
            locks.release(state, first.receipt)
    _admit(state, request, plan)


def plant(patch: Patch) -> None:
    patch(placement, "_admit", _unlocking)
