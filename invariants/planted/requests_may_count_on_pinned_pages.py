"""Planted in `pinning.pinned_beside`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.wants import pinning

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request that only fits without the pins is told to wait."
KILLS = "answers"
WANTED = True


def _none(state: Any, request: Any) -> int:
    return 0


def plant(patch: Patch) -> None:
    patch(pinning, "pinned_beside", _none)
