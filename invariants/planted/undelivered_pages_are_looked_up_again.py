"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import queue

from .base import Patch

ROWS = ("H15",)
TITLE = "What storage promised and did not deliver is looked up again for the next request."
KILLS = "fault-soft"


def _forget(state: Any, digest: bytes) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(queue, "distrust", _forget)
