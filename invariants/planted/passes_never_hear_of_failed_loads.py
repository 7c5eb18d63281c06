"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core.types import FlightId
from hicache.runtime.controller import TransferController

from .base import Patch

ROWS: tuple[str, ...] = ("C16",)
TITLE = "A pass whose load failed before it ends well."
KILLS = ""
EXECUTOR = "device"


def _never(self: TransferController, flight: FlightId) -> bool:
    return False


def plant(patch: Patch) -> None:
    patch(TransferController, "load_failed", _never)
