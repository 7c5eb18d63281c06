"""Making room on the device: what happens to the coldest leaf's prefix when its pages are wanted.

    backed up       demoted: the node stays, on host only
    not backed up   write_back copies it to host first: its pages *drain*, free one reply later;
                    otherwise, or where host has no room, it is dropped

Strictly in order: while colder pages drain, warmer ones are not taken in their place, neither in
the place of those pages nor in that of the prefix above them, which comes up once they are gone.
"""

from __future__ import annotations

from .backup import begin_backup
from .eviction import drop, tail, vacate
from .lru import DEVICE, offer, pop_coldest
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
    rank = state.eviction.rank
    floor = _behind_drains(state) if state.draining else None
    while pool.free + state.draining < goal:
        node = pop_coldest(state.queues[DEVICE], state.eviction)
        if node is None:
            return
        if floor is not None and rank(node) > floor:
            offer(state.queues, state.eviction, node)
            return
        short = goal - pool.free - state.draining
        above = _evict_leaf(state, node, min(short, span(node, state.stride)))
        if above is not None and above.parent is not None:
            floor = rank(above) if floor is None else min(floor, rank(above))


def _behind_drains(state: State) -> int:
    """The lowest rank that will be up for eviction once what drains has gone: that of a parent."""
    draining = [
        leg.node
        for flight in state.flights.values()
        if flight.drains
        for leg in flight.legs
        if leg.node is not None
    ]
    leaving = {node.id for node in draining}
    ranks = [
        state.eviction.rank(node.parent)
        for node in draining
        if node.parent is not None and node.parent.parent is not None
        if node.parent.id not in leaving
    ]
    return min(ranks, default=state.tick)


def _evict_leaf(state: State, node: Node, pages: int) -> Node | None:
    """Evict a leaf's last pages; where they have to drain first, the node above them."""
    if node.pages[Tier.HOST][BACKBONE] is not None:
        vacate(state, tail(state, node, pages), Tier.DEVICE, demoted=True)
        return None
    if state.writes.on_evict and state.config.has_host and not node.unsaved:
        node = tail(state, node, pages)
        if begin_backup(state, [node], drains=pages):
            return node.parent
    drop(state, node, Tier.DEVICE, pages)
    return None
