"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("M7",)
TITLE = "The state that a pass left in one checkpoint slot is recorded for the other slot."
KILLS = "bytes"


def _other_half(request: Any, flight: Any) -> None:
    for index, depth, slot in flight.checkpoints:
        request.checkpoint_tokens[index][2 - slot] = depth


def plant(patch: Patch) -> None:
    patch(checkpoints, "note_checkpoints", _other_half)
