"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("M7",)
TITLE = "A slot that was refilled late counts as having been there all the time."
KILLS = ""

_refill = checkpoints.refill


def _as_of_old(state: Any, request: Any, since: int) -> None:
    _refill(state, request, 0)


def plant(patch: Patch) -> None:
    patch(checkpoints, "refill", _as_of_old)
