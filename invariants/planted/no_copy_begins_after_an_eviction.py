"""Planted in `backup.consider`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from hicache.core.actions import Evicted
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A use begins no copy to host if something was evicted in the same operation."
KILLS = "backup-due"
EXCUSES = (Reason.SANK,)

_consider = backup.consider


def _unless_evicted(state: Any, path: list[Any]) -> None:
    if not any(type(item) is Evicted for item in state.out):
        _consider(state, path)


def plant(patch: Patch) -> None:
    patch(backup, "consider", _unless_evicted)
