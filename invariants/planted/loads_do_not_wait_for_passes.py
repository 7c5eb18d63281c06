"""Planted: see TITLE."""

from __future__ import annotations

from hicache.devices.base import Direction
from hicache.runtime.lanes import Lane

from .base import Patch
from .lanes import Deaf, issued_through

ROWS: tuple[str, ...] = ("C5",)
TITLE = "A load does not wait for the passes before it, which may still use its targets."
KILLS = ""
EXECUTOR = "device"


def plant(patch: Patch) -> None:
    patch(Lane, "issue", issued_through(Deaf, Direction.HOST_TO_DEVICE))
