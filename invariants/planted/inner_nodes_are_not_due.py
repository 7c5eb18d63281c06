"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("G2",)
TITLE = "A fresh node that is cut before its backup is due never gets one, nor does what is below."
KILLS = "backup-due"

_consider = backup.consider


def _leaves_only(state: Any, path: list[Any]) -> None:
    _consider(state, [node for node in path if not node.children])


def plant(patch: Patch) -> None:
    patch(backup, "consider", _leaves_only)
