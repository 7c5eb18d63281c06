"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import queue

from .base import Patch

ROWS = ("H15",)
TITLE = "What storage did not deliver once is not looked up after it was stored again."
KILLS = "fault-soft"


def _never(state: Any, digests: Any) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(queue, "trust", _never)
