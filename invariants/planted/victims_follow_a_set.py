"""Planted: see TITLE. `eviction.leave_tier` goes through a set of names."""

from __future__ import annotations

from hicache.core import eviction
from hicache.core.radix.node import Node
from hicache.core.state import State
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The components of a victim are evicted in the order of a set, which hashing decides."
KILLS = ""
HASHED = True


def _in_the_order_of_a_set(state: State, node: Node, tier: Tier) -> None:
    names = state.config.components
    for name in set(names):
        index = names.index(name)
        if node.pages[tier][index] is not None:
            eviction._free_copy(state, node, tier, index)


def plant(patch: Patch) -> None:
    patch(eviction, "leave_tier", _in_the_order_of_a_set)
