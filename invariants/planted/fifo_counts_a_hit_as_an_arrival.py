"""Planted in `eviction_policies.fifo`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies.fifo import Fifo

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Under fifo a hit makes a node as young as one that has just come."
KILLS = "order-ref"
EVICTION = "fifo"


def _latest_use(self: Fifo, node: Any, component: int) -> int:
    return int(node.last_use[component])


def plant(patch: Patch) -> None:
    patch(Fifo, "rank", _latest_use)
