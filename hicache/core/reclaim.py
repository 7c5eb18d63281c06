"""Making room on the device: what happens to the coldest leaf's prefix when its pages are wanted.

    backed up       demoted: the node stays, on host only
    not backed up   write_back copies it to host first: its pages *drain*, free one reply later;
                    otherwise, or where host has no room, it is dropped

Strictly in order: while colder pages drain, warmer ones are not taken in their place.
"""

from __future__ import annotations

from .backup import begin_backup
from .eviction import drop, tail, vacate
from .lru import DEVICE, pop_coldest
from .node import Node
from .state import State
from .tree import BACKBONE, span
from .types import Tier


def make_device_room(state: State, count: int) -> bool:
    """Whether `count` device pages are free now, after evicting what was missing."""
    pool = state.pools[Tier.DEVICE][BACKBONE]
    evict_device(state, count - pool.free)
    return pool.free >= count


def evict_device(state: State, count: int) -> None:
    """Free up to `count` device pages, now or by draining; less where the rest is in use."""
    pool = state.pools[Tier.DEVICE][BACKBONE]
    goal = pool.free + count
    while pool.free + state.draining < goal:
        node = pop_coldest(state.queues[DEVICE], state.eviction)
        if node is None:
            return
        short = goal - pool.free - state.draining
        _evict_leaf(state, node, min(short, span(node, state.stride)))


def _evict_leaf(state: State, node: Node, pages: int) -> None:
    if node.pages[Tier.HOST][BACKBONE] is not None:
        vacate(state, tail(state, node, pages), Tier.DEVICE, demoted=True)
        return
    if state.writes.on_evict and state.config.has_host:
        node = tail(state, node, pages)
        if begin_backup(state, [node], drains=pages):
            return
    drop(state, node, Tier.DEVICE, pages)
