"""Backups: copies to host, made when a node has been used often enough or before it is evicted.

A write policy may keep host copies contiguous. Then a host copy of the backbone requires the
parent's host copy, and a host copy of any other component requires the backbone's. Each batch has
parents before children and the backbone before the other components, and batches land in order. A
copy whose parent or backbone copy is missing is discarded when it lands.

Does not open, close or track flights; see `flights`.
"""

from __future__ import annotations

from itertools import chain

from .actions import Backup
from .errors import CoreBug
from .eviction import kept_free, make_host_room
from .flights import add_legs, copies_of, end_leg, evict_with, open_flight
from .radix.locks import lock, lock_for_storage, open_receipt
from .radix.lru import is_garbage
from .radix.node import Flight, FlightKind, Node
from .radix.tree import path_to
from .state import State
from .types import BACKBONE, DEVICE, HOST, Pages

Wanted = tuple[Node, list[int]]


def consider(state: State, path: list[Node]) -> None:
    """Begin the backups that a request's use of this path makes due."""
    threshold = state.writes.threshold
    if not threshold or not state.config.has_host or state.backups >= state.config.max_backups:
        return
    due: list[Wanted] = []
    for node in path:
        missing = missing_on_host(state, node)
        if not missing:
            continue
        if node.hits < threshold:
            break
        due.append((node, missing))
    if due:
        begin_backup(state, due)


def missing_on_host(state: State, node: Node) -> list[int]:
    """Components of the node to back up: on device, neither on host nor in a backup in flight, not
    garbage, and with a host pool."""
    device, host = node.pages
    if len(device) == 1 and host[BACKBONE] is not None:
        return []
    missing = []
    for index, pages in enumerate(device):
        if pages is None or host[index] is not None or not state.pools[HOST][index].capacity:
            continue
        if index and is_garbage(node, state.components[index].window_pages):
            continue
        if not any(
            leg.component == index and leg.flight.kind is FlightKind.BACKUP for leg in node.legs
        ):
            missing.append(index)
    return missing


def begin_backup(state: State, nodes: list[Wanted], asked: int = -1, pages: int = 0) -> bool:
    """Queue one backup of these nodes' components. nodes: of one path, parents first.

    The deepest nodes are left out if host has too little room. Returns False if it has room for
    none. asked, pages: if an eviction waits for the backup, the component that it evicts and the
    device pages that this frees.
    """
    fitting = _fitting(state, nodes)
    if not fitting:
        return False
    flight = open_flight(state, FlightKind.BACKUP)
    flight.receipt = receipt = open_receipt(state, f"backup {flight.id}")
    above = path_to(fitting[-1][0])
    lock(state, receipt, above, DEVICE)
    lock(state, receipt, above, HOST)
    wanting = [
        [node for node, components in fitting if index in components]
        for index in range(len(state.components))
    ]
    for index, wanted in enumerate(wanting):
        lock(state, receipt, wanted, DEVICE, index)
    counts = [
        sum(len(_device_pages(node, index)) for node in wanted)
        for index, wanted in enumerate(wanting)
    ]
    for index, count in enumerate(counts):
        if count and not make_host_room(state, index, count):
            raise CoreBug(f"{state.pools[HOST][index]}: {count} pages were to be had")
    for index, count in enumerate(counts):
        if count:
            _add_legs(state, flight, index, wanting[index], count)
    if not flight.legs:
        raise CoreBug(f"{flight} copies nothing")
    if asked >= 0:
        evict_with(state, flight, asked, pages)
    state.out.append(Backup(flight.id, copies_of(state, flight)))
    return True


def _add_legs(state: State, flight: Flight, index: int, nodes: list[Node], count: int) -> None:
    """Reserve the host pages for the flight and add its legs."""
    add_legs(state, flight, index, nodes, state.pools[HOST][index].reserve(count, flight.id))


def _fitting(state: State, nodes: list[Wanted]) -> list[Wanted]:
    """The leading nodes that host has room for. The unlocked host copies above them count as used,
    because the backup will lock them."""
    pools = state.pools[HOST]
    room = [pool.available - kept_free(state, index) for index, pool in enumerate(pools)]
    for node in path_to(nodes[-1][0]):
        above = node.pages[HOST][BACKBONE]
        if above is not None and not node.locks[HOST][BACKBONE]:
            room[BACKBONE] -= len(above)
    fitting: list[Wanted] = []
    for node, components in nodes:
        for index in components:
            room[index] -= len(_device_pages(node, index))
        if min(room) < 0:
            break
        fitting.append((node, components))
    return fitting


def land_backup(state: State, flight: Flight, ok: bool) -> None:
    """Handle the reply: add the copies to the tree, or free their pages."""
    for leg in flight.legs:
        node, index = leg.node, leg.component
        if node is None:
            end_leg(state, leg, HOST, adopt=False)
            continue
        bit = 1 << index
        if ok or not flight.evicts:
            node.host_refused &= ~bit
        else:
            node.host_refused |= bit
        adopt = ok and may_publish(state, flight, node, index)
        if end_leg(state, leg, HOST, adopt) and index == BACKBONE:
            lock_for_storage(state, node)
    flight.legs.clear()  # breaks the reference cycle between flight and legs


def may_publish(state: State, flight: Flight, node: Node, index: int) -> bool:
    """Whether the tree can take a host copy that the flight has brought for this node. Locks of the
    flight itself do not count."""
    parent = node.parent
    if index != BACKBONE:
        return not state.writes.contiguous or node.pages[HOST][BACKBONE] is not None
    below = node.children.values() if node.with_pages[HOST] else ()
    beside = chain(node.locks[HOST], (child.locks[HOST][BACKBONE] for child in below))
    own = flight.receipt
    for receipt in chain.from_iterable(holders.values() for holders in beside):
        if receipt is not own and not receipt.of_storage:
            return False  # an unlocked copy above or beside another's lock could not be evicted
    return not state.writes.contiguous or (
        parent is not None and (parent.parent is None or parent.pages[HOST][BACKBONE] is not None)
    )


def _device_pages(node: Node, index: int) -> Pages:
    pages = node.pages[DEVICE][index]
    if pages is None:
        raise CoreBug(f"{node} has nothing to back up of component {index}")
    return pages
