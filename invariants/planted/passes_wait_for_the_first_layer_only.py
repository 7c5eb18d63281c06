"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core.types import FlightId
from hicache.devices.base import Mark
from hicache.runtime.controller import TransferController

from .base import Patch

ROWS: tuple[str, ...] = ("C4",)
TITLE = "Every layer of a pass waits for the first layer of its load."
KILLS = ""
EXECUTOR = "device"

_load_marks = TransferController.load_marks


def _first(self: TransferController, flight: FlightId) -> tuple[Mark, ...]:
    marks = _load_marks(self, flight)
    return marks[:1] * len(marks)


def plant(patch: Patch) -> None:
    patch(TransferController, "load_marks", _first)
