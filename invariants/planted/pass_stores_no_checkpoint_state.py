"""Planted in `checkpoints.choose_checkpoint_slots`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A pass stores no state at the boundaries that it makes."
KILLS = "leaves"
COMPONENTS = ("full", "mamba")


def _nothing(state: Any, request: Any, flight: Any, start: int) -> None:
    """Stores no state."""


def plant(patch: Patch) -> None:
    patch(checkpoints, "choose_checkpoint_slots", _nothing)
