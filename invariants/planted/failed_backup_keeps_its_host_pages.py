"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("G11",)
TITLE = "The host pages of a copy that failed are never given back."
KILLS = "own-h"
FAULTS = (
    "fail",
    "torn",
)

_land_backup = backup.land_backup


def _keep_targets(state: Any, flight: Any, ok: bool) -> None:
    for leg in () if ok else flight.legs:
        leg.target = leg.target[:0]
    _land_backup(state, flight, ok)


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _keep_targets)
