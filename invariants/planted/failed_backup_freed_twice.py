"""Planted in `backup.land_backup`: a failed copy releases its pages twice."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("A7",)
TITLE = "The host pages of a copy that failed are released by two owners."
KILLS = ""
FAULTS = ("submit error", "fail", "late error")

_land_backup = backup.land_backup


def _twice(state: Any, flight: Any, ok: bool) -> None:
    legs = list(flight.legs)
    _land_backup(state, flight, ok)
    for leg in () if ok else legs:
        state.pools[Tier.HOST][leg.component].give_back(leg.target)


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _twice)
