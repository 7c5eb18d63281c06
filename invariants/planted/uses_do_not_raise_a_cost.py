"""Planted in `CostAware.rank`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies import cost_aware
from hicache.core.eviction_policies.base import TICK_BITS, before

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy that was used often is worth no more than one that was used once."
KILLS = "lru"
EVICTION = "cost_aware"
COMPONENTS = ("full", "mamba")


def _once(policy: Any, node: Any, component: int) -> int:
    marks = node.marks
    worth = (marks.age[component] >> TICK_BITS) + marks.cost[component]
    return before(worth, node.last_use[component])


def plant(patch: Patch) -> None:
    patch(cost_aware.CostAware, "rank", _once)
