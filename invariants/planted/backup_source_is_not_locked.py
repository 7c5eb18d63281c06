"""Planted in `backup.begin_backup`: the source is unlocked when the copy is queued."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("C7",)
TITLE = "The source pages of a backup can be evicted and overwritten before they are copied."
KILLS = "lock-bal"

_begin_backup = backup.begin_backup


def _unlock_sources(state: Any, nodes: Any, asked: int = -1, pages: int = 0) -> bool:
    if not _begin_backup(state, nodes, asked, pages):
        return False
    receipt = state.flights[state.next_flight - 1].receipt
    for index, entries in enumerate(receipt.locked):
        sources = [one for one in entries if one[1] == 0]
        entries[:] = [one for one in entries if one[1] != 0]
        locks._unlock(state, receipt, sources, index)
    return True


def plant(patch: Patch) -> None:
    patch(backup, "begin_backup", _unlock_sources)
