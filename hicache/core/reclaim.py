"""Eviction from the device: decide what happens to the coldest copy when its pages are wanted.

    backed up       demoted: the node stays, on host only
    not backed up   the write_back policy copies it to host first (it *writes it back*), and its
                    pages become free with the reply; under another policy, or if host has no
                    room, it is deleted
    garbage         not copied: deleted, or demoted if the node is on host already

A leaf is evicted with all its components, whichever of them is wanted. On any other node, on a node
with a lock, and on a leaf that is not on host while what is below it is, evicting a component other
than the backbone leaves a tombstone: what is below needs this prefix.

Never skip ahead: while a colder page is being written back, evict neither a warmer page nor one
warmer than the prefix above it, because that prefix can be evicted next. A copy to host that no
eviction asked for also holds back warmer pages: a host tier must not change the eviction order.

Does not free pages or change nodes, see `eviction`, and does not copy to host, see `backup`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from .backup import begin_backup, missing_on_host
from .errors import CoreBug
from .eviction import cut_tail, delete_dead, delete_tail, demote, tombstone
from .radix.lru import is_garbage, next_victim, offer
from .radix.marks import next_spared
from .radix.node import NONE, FlightKind, Node
from .radix.tree import span
from .state import State
from .types import BACKBONE, DEVICE, HOST


def make_device_room(state: State, index: int, count: int) -> bool:
    """Evict until `count` device pages are free. Returns whether they are."""
    pool = state.pools[DEVICE][index]
    if pool.free < count:
        evict_device(state, index, count - pool.free)
    return pool.free >= count


def evict_device(state: State, index: int, count: int) -> None:
    """Free `count` device pages, now or by writing back; fewer if the rest is in use or must wait
    for a copy in flight."""
    pool = state.pools[DEVICE][index]
    queues = [state.queues[index][DEVICE]]
    goal = pool.free + count
    floor = _floor(state) if index == BACKBONE and pool.free < goal else None
    while pool.free + state.writing_back[index] < goal:
        if state.second_chance is not None:
            node = next_spared(state, index)
        else:
            node = next_victim(queues, state.eviction)
        if node is None:
            return
        if node.pages[DEVICE][index] is None:
            raise CoreBug(f"{node} is to free device pages of component {index} that it has not")
        short = goal - pool.free - state.writing_back[index]
        if index != BACKBONE:
            _evict_copy(state, node, index, short)
        elif floor is not None and node.live_distance != NONE and _rank(state, node) > floor:
            offer(state.queues, state.eviction, node, DEVICE, BACKBONE)
            return
        else:
            above = _evict_leaf(state, node, index, min(short, span(node, state.stride)))
            if above is not None and above.parent is not None and not _leaves(above):
                floor = _rank(state, above) if floor is None else min(floor, _rank(state, above))
        delete_dead(state)


def _rank(state: State, node: Node) -> int:
    return state.eviction.rank(node, BACKBONE)


def _floor(state: State) -> int | None:
    """The lowest rank among backbone copies that can be evicted when the copies to host in flight
    have ended. No copy of a higher rank may be evicted before. None if there is no such copy."""
    if not state.backups:
        return None
    return min(chain(_behind_write_backs(state), _under_copy(state)), default=None)


def _behind_write_backs(state: State) -> Iterator[int]:
    """Ranks of the parents of nodes that are being written back. They can be evicted next."""
    if not state.writing_back[BACKBONE]:
        return
    leaving_nodes = [
        leg.node
        for flight in state.flights.values()
        if flight.evicts and flight.frees[BACKBONE]
        for leg in flight.legs
        if leg.node is not None
    ]
    leaving = {node.id for node in leaving_nodes}
    for node in leaving_nodes:
        above = node.parent
        if above is not None and above.parent is not None and above.id not in leaving:
            yield _rank(state, above)


def _leaves(node: Node) -> bool:
    """Whether the node is being written back already."""
    return any(leg.flight.evicts and leg.flight.frees[BACKBONE] for leg in node.legs)


def _under_copy(state: State) -> Iterator[int]:
    """Ranks of nodes that only backups lock: without a host tier they could be evicted now. Nodes
    that are being written back for an eviction are left out."""
    copies = [one for one in state.flights.values() if one.kind is FlightKind.BACKUP]
    receipts = {one.receipt.id for one in copies if one.receipt is not None}
    for flight in copies:
        if flight.receipt is None or flight.evicts:
            continue
        for node, tier in flight.receipt.locked[BACKBONE]:
            if tier == DEVICE and all(holders.keys() <= receipts for holders in node.locks[DEVICE]):
                yield _rank(state, node)


def _evict_copy(state: State, node: Node, index: int, short: int) -> None:
    """Evict a component other than the backbone. If it is on host already, it does not wait until
    the other components of its leaf are copied."""
    free = node.with_pages[DEVICE] == 0 and not any(node.locks[DEVICE])
    missing = _to_write_back(state, node, index, whole=free)
    if free and (index in missing or not missing):
        pages = span(node, state.stride)
        positional = state.components[index].positional
        _evict_leaf(state, node, index, min(short, pages) if positional else pages)
    elif index not in missing or not _write_back(state, node, index, [index]):
        tombstone(state, node, DEVICE, index)


def _evict_leaf(state: State, node: Node, index: int, pages: int) -> Node | None:
    """Evict the last pages of a leaf. Returns the node above them if they are written back first,
    else None."""
    if node.with_pages[DEVICE]:
        raise CoreBug(f"{node} is to go as a leaf and has children on device")
    missing = _to_write_back(state, node, index, whole=True)
    if missing:
        node = cut_tail(state, node, pages)
        if _write_back(state, node, index, missing):
            return node.parent
    if node.pages[HOST][BACKBONE] is not None:
        demote(state, cut_tail(state, node, pages))
    elif index != BACKBONE and node.children:
        tombstone(state, cut_tail(state, node, pages), DEVICE, index)
    else:
        delete_tail(state, node, DEVICE, pages)
    return None


def _to_write_back(state: State, node: Node, index: int, whole: bool) -> list[int]:
    """The components that the policy wants on host before this component, or with `whole` the whole
    node, leaves the device. Empty if one of them cannot be stored on host: without it the boundary
    is lost anyway."""
    if not state.writes.on_evict or not state.config.has_host:
        return []
    if is_garbage(node, state.components[index].window_pages):
        return []
    for one in range(len(state.components)) if whole else (index,):
        lacking = node.pages[0][one] is not None and node.pages[1][one] is None
        if lacking and (node.host_refused >> one & 1 or not state.pools[HOST][one].capacity):
            return []
    return missing_on_host(state, node)


def _write_back(state: State, node: Node, index: int, components: list[int]) -> bool:
    """Begin the copy that an eviction waits for. Returns False if host has no room."""
    pages = node.pages[DEVICE][index]
    if pages is None:
        raise CoreBug(f"{node} has nothing to write back of component {index}")
    return begin_backup(state, [(node, components)], index, len(pages))
