"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("M1",)
TITLE = "An admission that is undone leaves the load that it had planned in flight."
KILLS = "live-ack"


def _close_nothing(state: Any, plan: Any) -> None:
    locks.release(state, plan.receipt)
    if plan.flight is not None and plan.flight.receipt is not None:
        locks.release(state, plan.flight.receipt)


def plant(patch: Patch) -> None:
    patch(placement, "_undo", _close_nothing)
