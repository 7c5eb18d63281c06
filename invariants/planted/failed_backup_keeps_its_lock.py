"""Planted in `backup.land_backup`: a failure does not release the locks."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A backup that fails never gives back the locks that it took."
KILLS = "lock-bal"
FAULTS = (
    "fail",
    "submit error",
    "late error",
    "torn",
    "torn suffix",
    "torn half",
    "torn last page",
    "torn whole",
)

_land_backup = backup.land_backup


def _forget(state: Any, flight: Any, ok: bool) -> None:
    if not ok:
        flight.receipt = None
    _land_backup(state, flight, ok)


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _forget)
