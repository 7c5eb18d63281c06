"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("G2",)
TITLE = "A node that is split before its backup is due is never backed up, nor what is below."
KILLS = "backup-due"

_consider = backup.consider


def _leaves_only(state: Any, path: list[Any]) -> None:
    _consider(state, [node for node in path if not node.children])


def plant(patch: Patch) -> None:
    patch(backup, "consider", _leaves_only)
