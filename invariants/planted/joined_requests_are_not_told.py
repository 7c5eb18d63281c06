"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Only the first request of a prefetch is told that it has ended."
KILLS = "prefetch-wait"


def _nobody(state: Any, waiters: Any) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(prefetch, "try_again", _nobody)
