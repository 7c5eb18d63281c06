"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS = ("G6",)
TITLE = "A copy that was written back because of an eviction is not stored."
KILLS = "stored"

_land_backup = backup.land_backup


def _stored_unless_evicting(state: Any, flight: Any, ok: bool) -> list[Any]:
    evicts = flight.evicts
    nodes = _land_backup(state, flight, ok)
    return [] if evicts else nodes


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _stored_unless_evicting)
