"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Windows that a growing request has left behind stay locked."
KILLS = "leaf-set"


def _unlock_nothing(state: Any, receipt: Any, index: int, end: int) -> None:
    del state, receipt, index, end


def plant(patch: Patch) -> None:
    patch(locks, "unlock_above", _unlock_nothing)
