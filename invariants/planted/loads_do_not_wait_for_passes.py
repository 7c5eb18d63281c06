"""Planted: see TITLE."""

from __future__ import annotations

from hicache.devices.base import Direction
from hicache.runtime.lanes import Lane

from ._lanes import Deaf, issued_through
from .base import Patch

ROWS: tuple[str, ...] = ("C5",)
TITLE = "A load does not wait for the passes before it, which may still use its targets."
KILLS = ""
EXECUTOR = "device"


def plant(patch: Patch) -> None:
    patch(Lane, "issue", issued_through(Deaf, Direction.HOST_TO_DEVICE))
