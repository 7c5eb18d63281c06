"""Locks by receipt: a receipt lists what its holder locked, and a release undoes exactly that list.

The lock count of (node, tier, component) is the number of receipts on it. Only pages that a node
has can be locked. If the backbone of a node is locked, so is that of every node above it; if
another component of a node is locked, so is the node's backbone. Therefore eviction can reach
exactly the unlocked cached pages of a pool.

Fetches and stores lock host copies only, so the nodes above may leave the device meanwhile. If such
a node is copied to host, the flights that lock copies below it lock the new copy too. If it is
deleted, what is below it is deleted too, and the flights lose those locks.
"""

from __future__ import annotations

from itertools import chain

from ..errors import About, CoreBug
from ..state import State
from ..types import BACKBONE, DEVICE, HOST
from .lru import offer
from .node import NOTHING, FlightKind, Node, Receipt, drop_locks, own_locks
from .tree import path_to


def open_receipt(state: State, holder: str, of_storage: bool = False) -> Receipt:
    receipt = Receipt(state.next_receipt, holder, [[] for _ in state.components], of_storage)
    state.next_receipt += 1
    return receipt


def lock(
    state: State, receipt: Receipt, nodes: list[Node], tier: int, index: int = BACKBONE
) -> None:
    """Lock the component at those nodes that have it on the tier. A receipt locks a copy once."""
    locked, pool, number = receipt.locked[index], state.pools[tier][index], receipt.id
    for node in nodes:
        pages = node.pages[tier][index]
        if pages is None:
            continue
        holders = node.locks[tier][index]
        if number in holders:
            continue
        if not holders:
            pool.protected += len(pages)
            if holders is NOTHING:
                holders = own_locks(node, tier)[index]
        holders[number] = receipt
        locked.append((node, tier))
        state.touched[node.id] = node


def required(path: list[Node], window_pages: int) -> list[Node]:
    """The nodes of the path at which its end requires a component with this window."""
    if not path or path[-1].end_page <= window_pages:
        return path
    first, above = len(path) - 1, path[-1].end_page - window_pages
    while path[first - 1].end_page > above and first:
        first -= 1
    return path[first:]


def lock_required(state: State, receipt: Receipt, path: list[Node], since: int = 0) -> None:
    """Lock on device what a prefix that ends with this path requires. Locks of the receipt on other
    components above their windows are released. since: the receipt has locked the backbone up to
    this page already."""
    fresh = path if not since else [node for node in path if node.end_page > since]
    lock(state, receipt, fresh, DEVICE)
    for index in range(BACKBONE + 1, len(state.components) if path else 0):
        window = state.components[index].window_pages
        lock(state, receipt, required(path, window)[::-1], DEVICE, index)
        unlock_above(state, receipt, index, path[-1].end_page - window)


def unlock_above(state: State, receipt: Receipt, index: int, end: int) -> None:
    """Release the component on device at nodes that end at or before page `end`."""
    entries = receipt.locked[index]
    if not entries:
        return
    gone = [one for one in entries if one[1] == DEVICE and one[0].end_page <= end]
    if gone:
        entries[:] = [one for one in entries if one[1] != DEVICE or one[0].end_page > end]
        _unlock(state, receipt, gone, index)


def lock_for_storage(state: State, node: Node) -> None:
    """The node got a host copy of the backbone. Fetches and stores that lock a host copy below or
    beside it extend their locks to it and to the path above it."""
    if not state.storage_flights:
        return
    below = node.children.values() if node.with_pages[HOST] else ()
    beside = chain(node.locks[HOST], (child.locks[HOST][BACKBONE] for child in below))
    holders = {receipt.id: receipt for one in beside for receipt in one.values()}
    for receipt in holders.values():
        if receipt.of_storage:
            lock(state, receipt, path_to(node), HOST)


def unlock_deleted(state: State, node: Node) -> None:
    """The node is about to be deleted: fetches and stores lose their locks on it, and stores of it
    are of no node any more."""
    for index, holders in enumerate(node.locks[HOST]):
        pages = node.pages[HOST][index]
        if not holders or pages is None:
            continue
        if not all(receipt.of_storage for receipt in holders.values()):
            raise CoreBug(f"{node} is to be deleted and is locked", About("node", node.id))
        for receipt in holders.values():
            receipt.locked[index].remove((node, HOST))
        holders.clear()
        state.pools[HOST][index].protected -= len(pages)
    for leg in node.legs:
        if leg.flight.kind is not FlightKind.STORE:
            raise CoreBug(f"{node} is to be deleted and {leg.flight} copies it")
        leg.node = None
    node.legs = ()


def release(state: State, receipt: Receipt) -> None:
    """Release every lock that the receipt lists, and empty the list."""
    for index, entries in enumerate(receipt.locked):
        if entries:
            _unlock(state, receipt, entries, index)
            entries.clear()


def _unlock(state: State, receipt: Receipt, entries: list[tuple[Node, int]], index: int) -> None:
    touched, pools = state.touched, state.pools
    queues, policy = state.queues, state.eviction
    for node, tier in entries:
        holders, pages = node.locks[tier][index], node.pages[tier][index]
        if pages is None or holders.pop(receipt.id, None) is None:
            raise CoreBug(
                f"{receipt.name} releases a lock on {node} that it does not hold",
                About("node", node.id),
            )
        touched[node.id] = node
        if not holders:
            pools[tier][index].protected -= len(pages)
            if index != BACKBONE:
                offer(queues, policy, node, tier, index)
            if not node.with_pages[tier]:
                offer(queues, policy, node, tier, BACKBONE)
            if node.children is NOTHING:
                drop_locks(node)
