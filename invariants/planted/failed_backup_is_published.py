"""Planted in `backup.land_backup`: the result of the reply is ignored."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("C16",)
TITLE = "The host pages of a copy that failed are put into the tree."
KILLS = "bytes"
FAULTS = (
    "fail",
    "torn whole",
)

_land_backup = backup.land_backup


def _fine(state: Any, flight: Any, ok: bool) -> None:
    _land_backup(state, flight, True)


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _fine)
