"""Planted in `insertion.insert`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion
from hicache.core.radix.tree import nodes_below
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What could not be written back is not tried again after the next use."
KILLS = "durable"
EXCUSES = (Reason.FAILED,)

_insert = insertion.insert


def _insert_and_remember(state: Any, *args: Any, **named: Any) -> list[Any]:
    before = {node.id: node.host_refused for node in nodes_below(state.root)}
    path = _insert(state, *args, **named)
    for node in path:
        node.host_refused = before.get(node.id, 0)
    return path


def plant(patch: Patch) -> None:
    patch(insertion, "insert", _insert_and_remember)
