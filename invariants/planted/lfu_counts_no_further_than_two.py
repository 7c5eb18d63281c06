"""Planted in `eviction_policies.lfu`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies.base import before
from hicache.core.eviction_policies.lfu import Lfu

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Under lfu a node that ten requests used counts as one that two used."
KILLS = "order-ref"
EVICTION = "lfu"


def _capped(self: Lfu, node: Any, component: int) -> int:
    return before(min(node.hits, 2), node.last_use[component])


def plant(patch: Patch) -> None:
    patch(Lfu, "rank", _capped)
