"""Planted in `reclaim.evict_device`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import reclaim
from hicache.core.radix import lru
from invariants.reasons import Reason

from ._second import second_victim
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The second victim of an eviction is not the coldest."
KILLS = "order-ref"
COMPONENTS = ("full", "swa", "mamba")
EXCUSES = (Reason.LATER,)

_evict_device = reclaim.evict_device
_turns = [0]
_next_victim = lru.next_victim


def _count_victims(state: Any, index: int, count: int) -> None:
    _turns[0] = 0
    _evict_device(state, index, count)


def _second_of_the_others(queues: list[Any], policy: Any) -> Any:
    _turns[0] += 1
    if _turns[0] == 2:
        return second_victim(queues, policy)
    return _next_victim(queues, policy)


def plant(patch: Patch) -> None:
    patch(reclaim, "evict_device", _count_victims)
    patch(lru, "next_victim", _second_of_the_others)
