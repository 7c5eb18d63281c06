"""Planted in `backup.may_publish`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy is dropped if the host copy of the node above it is locked."
KILLS = "durable"
EXCUSES = (Reason.LOCKED_BESIDE,)

_may_publish = backup.may_publish


def _unless_locked_above(state: Any, flight: Any, node: Any, index: int) -> bool:
    locked = not index and any(node.parent.locks[1])
    return not locked and _may_publish(state, flight, node, index)


def plant(patch: Patch) -> None:
    patch(backup, "may_publish", _unless_locked_above)
