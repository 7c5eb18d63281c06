"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A host copy is published below a parent that has none."
KILLS = "parent-bk"

_may_publish = backup.may_publish


def _always(state: Any, flight: Any, node: Any, index: int) -> bool:
    return True


def plant(patch: Patch) -> None:
    patch(backup, "may_publish", _always)
