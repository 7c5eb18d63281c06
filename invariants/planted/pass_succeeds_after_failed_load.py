"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core.types import FlightId
from hicache.runtime.controller import TransferController

from .base import Patch

ROWS: tuple[str, ...] = ("C16",)
TITLE = "A pass succeeds although the load that it reads has failed."
KILLS = ""
EXECUTOR = "device"


def _never(self: TransferController, flight: FlightId) -> bool:
    return False


def plant(patch: Patch) -> None:
    patch(TransferController, "load_failed", _never)
