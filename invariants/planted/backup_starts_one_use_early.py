"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What is to be backed up at its second use is backed up at its first."
KILLS = "backup-due"

_consider = backup.consider


def _eager(state: Any, path: list[Any]) -> None:
    for node in path:
        node.hits += 1
    _consider(state, path)
    for node in path:
        node.hits -= 1


def plant(patch: Patch) -> None:
    patch(backup, "consider", _eager)
