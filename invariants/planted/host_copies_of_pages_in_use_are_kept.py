"""Planted in `eviction.give_up_host`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An exclusive host keeps the copies of pages that a request uses on device."
KILLS = "exclusive"
EXCUSES = (Reason.LOCKED_COPY,)

_give_up_host = eviction.give_up_host


def _of_idle_nodes(state: Any, nodes: list[Any]) -> None:
    _give_up_host(state, [node for node in nodes if not any(node.locks[0])])


def plant(patch: Patch) -> None:
    patch(eviction, "give_up_host", _of_idle_nodes)
