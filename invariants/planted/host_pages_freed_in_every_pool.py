"""Planted in `eviction._give_back`: page numbers of one pool are forwarded to its siblings."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("A3",)
TITLE = "Host pages that one pool frees are put on the free lists of all pools."
KILLS = "own-h"

_give_back = eviction._give_back


def _everywhere(state: Any, tier: Any, index: int, pages: Any, node: Any) -> None:
    _give_back(state, tier, index, pages, node)
    for other, pool in enumerate(state.pools[tier]):
        if tier == Tier.HOST and other != index:
            known = pages[pages < pool.capacity]
            pool.give_back(known[pool.state[known] == 2])


def plant(patch: Patch) -> None:
    patch(eviction, "_give_back", _everywhere)
