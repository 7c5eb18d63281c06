"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A checkpoint slot taken during decode counts as if the request always had it."
KILLS = "lru"
COMPONENTS = ("full", "mamba")

_refill = checkpoints.refill_checkpoint_slots


def _forgetful(state: Any, request: Any, since: int) -> None:
    before = request.refilled_at_tokens
    _refill(state, request, since)
    request.refilled_at_tokens = before


def plant(patch: Patch) -> None:
    patch(checkpoints, "refill_checkpoint_slots", _forgetful)
