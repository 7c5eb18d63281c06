"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from hicache.core.radix import lru
from invariants.reasons import Reason

from ._second import second_victim
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "While two device pools are full, the coldest copy is not evicted first."
KILLS = "order-ref"
COMPONENTS = ("full", "swa")
EXCUSES = (Reason.UNCERTAIN_POOL,)

_evict_device = reclaim.evict_device
_next_victim = lru.next_victim
_full = [False]


def _look_around(state: Any, index: int, count: int) -> None:
    _full[0] = sum(not pool.free for pool in state.pools[0]) > 1
    _evict_device(state, index, count)
    _full[0] = False


def _second_while_full(queues: list[Any], policy: Any) -> Any:
    return (second_victim if _full[0] else _next_victim)(queues, policy)


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _look_around)
    patch(lru, "next_victim", _second_while_full)
