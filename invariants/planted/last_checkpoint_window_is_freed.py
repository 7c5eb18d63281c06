"""Planted in `checkpoints.owns_every_checkpoint_slot`: it always returns False."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("E12",)
TITLE = "The window before the last checkpoint is freed, the one before the end is kept."
KILLS = ""
COMPONENTS = ("full", "swa", "mamba")
EXCUSES = (Reason.INCOMPLETE_WINDOW,)


def _never(state: Any, request: Any) -> bool:
    return False


def plant(patch: Patch) -> None:
    patch(checkpoints, "owns_every_checkpoint_slot", _never)
