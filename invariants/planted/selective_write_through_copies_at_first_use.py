"""Planted in `backup.consider`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Under write_through_selective the first use begins the copy to host already."
KILLS = "backup-due"

_consider = backup.consider


def _one_use_early(state: Any, path: Any) -> None:
    for node in path:
        node.hits += 1
    _consider(state, path)
    for node in path:
        node.hits -= 1


def plant(patch: Patch) -> None:
    patch(backup, "consider", _one_use_early)
