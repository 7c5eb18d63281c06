"""Planted in `eviction_policies.slru`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies.slru import Slru

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Under slru a node is protected after its first use, so nothing is on probation."
KILLS = "order-ref"
EVICTION = "slru"


def _all_protected(self: Slru, node: Any, component: int) -> int:
    return int(node.last_use[component])


def plant(patch: Patch) -> None:
    patch(Slru, "rank", _all_protected)
