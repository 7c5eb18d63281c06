"""Planted: see TITLE."""

from __future__ import annotations

from hicache.devices.base import Direction
from hicache.runtime.lanes import Lane

from ._lanes import Deaf, issued_through
from .base import Patch

ROWS: tuple[str, ...] = ("C7",)
TITLE = "A backup does not wait for the passes before it, which may still write its source."
KILLS = ""
EXECUTOR = "device"


def plant(patch: Patch) -> None:
    patch(Lane, "issue", issued_through(Deaf, Direction.DEVICE_TO_HOST))
