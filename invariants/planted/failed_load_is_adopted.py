"""Planted in `transfers.cancel_load`: a failure ends like a success."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

from .base import Patch

ROWS: tuple[str, ...] = ("C16",)
TITLE = "The pages of a load that failed are put into the tree."
KILLS = "bytes"
FAULTS = (
    "fail",
    "torn",
    "torn whole",
    "late error",
)


def _land(state: Any, flight: Any) -> None:
    transfers.land(state, flight)


def plant(patch: Patch) -> None:
    patch(transfers, "cancel_load", _land)
