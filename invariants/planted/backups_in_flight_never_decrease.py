"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("G5",)
TITLE = "Finished backups still count as in flight, until no more may begin."
KILLS = "durable"

_land_backup = backup.land_backup


def _keep_the_count(state: Any, flight: Any, ok: bool) -> None:
    _land_backup(state, flight, ok)
    state.backups += 1


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _keep_the_count)
