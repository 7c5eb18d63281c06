"""Limits the states of a path as the core does, with one rule changed, for planted bugs.

Lives here: the one function that several bugs share. Does not patch anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core.eviction import tombstone
from hicache.core.radix.boundaries import is_there
from hicache.core.types import Tier


def in_use(node: Any, index: int) -> bool:
    """Whether the core keeps the state of a node on a path that has too many."""
    locked = any(side[index] for side in node.locks)
    copied = any(leg.component == index for leg in node.legs)
    return locked or copied or len(node.children) > 1


def limit_states(
    state: Any,
    path: list[Any],
    stays: Callable[[Any, int], bool] = in_use,
    deepest_first: bool = False,
    more: int = 0,
) -> None:
    """stays: whether a state must stay. more: how many more are freed than the limit asks for."""
    for index, component in enumerate(state.components):
        holding = [node for node in path if is_there(node, index)] if component.per_path else []
        excess = len(holding) - component.per_path
        excess += more if excess > 0 else 0
        for node in holding[-2::-1] if deepest_first else holding[:-1]:
            if excess > 0 and not stays(node, index):
                excess -= 1
                for tier in (Tier.HOST, Tier.DEVICE):
                    if node.pages[tier][index] is not None:
                        tombstone(state, node, tier, index)
