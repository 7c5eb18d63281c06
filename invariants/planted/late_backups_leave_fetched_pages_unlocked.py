"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A host copy that comes above what a store reads is not locked."
KILLS = "lock-bal"


def _never(state: Any, node: Any) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(locks, "lock_for_storage", _never)
