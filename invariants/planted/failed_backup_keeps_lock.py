"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS = ("B6",)
TITLE = "A backup that fails never gives back the locks that it took."
KILLS = "lock-bal"

_land_backup = backup.land_backup


def plant(patch: Patch) -> None:
    def land_backup(state: Any, flight: Any, ok: bool) -> None:
        if not ok:
            flight.receipt = None
        _land_backup(state, flight, ok)

    patch(backup, "land_backup", land_backup)
