"""Planted in `backup.land_backup`: nobody notes that host did not take a copy."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A page whose write-back failed is written back again, however often it fails."
KILLS = "copy-once"

_land_backup = backup.land_backup


def _forget(state: Any, flight: Any, ok: bool) -> None:
    nodes = [leg.node for leg in flight.legs if leg.node is not None]
    _land_backup(state, flight, ok)
    for node in nodes:
        node.host_refused = 0


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _forget)
