"""Planted in `windows._cut_locked`: it cuts nothing."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import windows

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request that needs pages keeps whole nodes locked of which its window passed a part."
KILLS = "alone"


def _uncut(state: Any, receipt: Any, index: int, at: int) -> None:
    """Cuts nothing."""


def plant(patch: Patch) -> None:
    patch(windows, "_cut_locked", _uncut)
