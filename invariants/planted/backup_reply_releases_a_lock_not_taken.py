"""Planted in `backup.land_backup`: the write-through reply runs for a policy that did not lock."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("B12",)
TITLE = "Under write_back the reply to a backup releases a lock that it has never taken."
KILLS = "lock-bal"

_land_backup = backup.land_backup


def _unlock_again(state: Any, flight: Any, ok: bool) -> None:
    nodes = [leg.node for leg in flight.legs if leg.node is not None]
    _land_backup(state, flight, ok)
    for node in nodes if state.writes.on_evict else ():
        above = node
        while above.parent is not None:
            holders = above.locks[0][0]
            if len(holders) == 1:
                holders.clear()
                state.pools[0][0].protected -= len(above.pages[0][0])
                state.touched[above.id] = above
            above = above.parent


def plant(patch: Patch) -> None:
    patch(backup, "land_backup", _unlock_again)
