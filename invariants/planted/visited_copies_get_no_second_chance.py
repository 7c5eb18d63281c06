"""Planted in `marks._spare`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import marks

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy at the front of a queue goes, however often it was visited."
KILLS = "second-chance"
EVICTION = "s3_fifo"
COMPONENTS = ("full",)


def _never(state: Any, node: Any, index: int) -> bool:
    return False


def plant(patch: Patch) -> None:
    patch(marks, "_spare", _never)
