"""Planted in `eviction_policies.priority`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies.priority import Priority

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Under priority the least recently used node is evicted first, whatever its priority."
KILLS = "order-ref"
EVICTION = "priority"


def _recency_alone(self: Priority, node: Any, component: int) -> int:
    return int(node.last_use[component])


def plant(patch: Patch) -> None:
    patch(Priority, "rank", _recency_alone)
