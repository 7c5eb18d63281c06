"""Planted: see TITLE."""

from __future__ import annotations

from hicache.devices.base import Direction
from hicache.runtime.lanes import Lane

from ._lanes import Early, issued_through
from .base import Patch

ROWS: tuple[str, ...] = ("C7",)
TITLE = "The mark that answers a backup is recorded before its copies are issued."
KILLS = ""
EXECUTOR = "device"


def plant(patch: Patch) -> None:
    patch(Lane, "issue", issued_through(Early, Direction.DEVICE_TO_HOST))
