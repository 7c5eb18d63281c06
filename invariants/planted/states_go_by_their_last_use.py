"""Planted in `Sieve.rank`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies import sieve
from hicache.core.eviction_policies.base import TICK_BITS, before

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Within a lap of the hand, states go in the order of their last use."
KILLS = "lru"
EVICTION = "sieve"
COMPONENTS = ("full", "mamba")


_rank = sieve.Sieve.rank


def _by_use(policy: Any, node: Any, component: int) -> int:
    rank = _rank(policy, node, component)
    return before(rank >> TICK_BITS, node.last_use[component]) if component else rank


def plant(patch: Patch) -> None:
    patch(sieve.Sieve, "rank", _by_use)
