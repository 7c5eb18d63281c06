"""Planted in `backup.consider`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "One backup fewer than the limit is under way at most."
KILLS = "backup-due"
EXCUSES = (Reason.TOO_MANY,)

_consider = backup.consider


def _consider_less(state: Any, path: list[Any]) -> None:
    if state.backups + 1 < state.config.max_backups:
        _consider(state, path)


def plant(patch: Patch) -> None:
    patch(backup, "consider", _consider_less)
