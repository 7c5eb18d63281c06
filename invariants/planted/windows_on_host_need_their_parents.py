"""Planted in `backup.may_publish`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The copy of a window is dropped unless the node above has its own on host."
KILLS = "durable"
COMPONENTS = ("full", "swa")
EXCUSES = (Reason.NOT_CONTIGUOUS,)

_may_publish = backup.may_publish


def _with_the_parents(state: Any, flight: Any, node: Any, index: int) -> bool:
    above = node.parent
    gap = index and above.parent is not None and above.pages[1][index] is None
    return not gap and _may_publish(state, flight, node, index)


def plant(patch: Patch) -> None:
    patch(backup, "may_publish", _with_the_parents)
