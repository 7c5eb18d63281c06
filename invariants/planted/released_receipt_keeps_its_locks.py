"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A released receipt is deleted, and what it locked stays locked."
KILLS = "lock-bal"


def _forget(state: Any, receipt: Any) -> None:
    del state
    for entries in receipt.locked:
        entries.clear()


def plant(patch: Patch) -> None:
    patch(locks, "release", _forget)
