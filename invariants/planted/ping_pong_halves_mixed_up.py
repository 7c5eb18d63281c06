"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("M7",)
TITLE = "What a pass left in one half of the buffer is noted for the other."
KILLS = "bytes"


def _other_half(request: Any, flight: Any) -> None:
    for index, depth, slot in flight.checkpoints:
        request.checkpoint_tokens[index][2 - slot] = depth


def plant(patch: Patch) -> None:
    patch(checkpoints, "note_checkpoints", _other_half)
