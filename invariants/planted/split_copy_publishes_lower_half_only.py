"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from hicache.core.actions import KvStored

from .base import Patch

ROWS: tuple[str, ...] = ("L2",)
TITLE = "If a node is split during its copy, only the lower half is published."
KILLS = "event-mirror"

_land_backup = backup.land_backup


def _last_only(state: Any, flight: Any, ok: bool) -> None:
    begun = len(state.out)
    _land_backup(state, flight, ok)
    told = [item for item in state.out[begun:] if type(item) is KvStored]
    for item in told[:-1]:
        state.out.remove(item)


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _last_only)
