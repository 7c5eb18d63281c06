"""Planted in `checkpoints.note_checkpoints`: depths are noted for the other slot."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("C13",)
TITLE = "The state of a boundary is read from the other checkpoint slot."
KILLS = "bytes"


def _other_half(request: Any, flight: Any) -> None:
    for index, depth, slot in flight.checkpoints:
        request.checkpoint_tokens[index][2 - slot] = depth


def plant(patch: Patch) -> None:
    patch(checkpoints, "note_checkpoints", _other_half)
