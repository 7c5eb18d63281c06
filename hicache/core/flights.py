"""Receipts and flights: lock and release; open a flight, add its legs, end the legs, close it. What
they mean: see `core`. Those of storage: see `prefetch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from .actions import NO_REQUEST, Copy
from .errors import About, CallerError, CoreBug
from .lru import offer
from .node import (
    NOTHING,
    Flight,
    FlightKind,
    Leg,
    Node,
    Receipt,
    copy_of,
    drop_leg,
    drop_locks,
    own_locks,
)
from .state import State
from .tree import attach, path_to
from .types import BACKBONE, DEVICE, HOST, FlightId, Pages, RequestId


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
    fresh = [node for node in path if node.end_page > since] if since else path
    if fresh:
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


_BACKUP = FlightKind.BACKUP


def open_flight(state: State, kind: FlightKind, request: RequestId = NO_REQUEST) -> Flight:
    """A new flight, without legs, loans or locks. The action carries its number."""
    flight = Flight(state.next_flight, kind, request, [0] * len(state.components))
    if flight.id in state.flights:
        raise CoreBug(f"{flight} is in flight already")
    state.next_flight += 1
    state.flights[flight.id] = flight
    if kind is _BACKUP:
        state.backups += 1
    return flight


def flight_of(state: State, flight_id: FlightId, kind: FlightKind) -> Flight:
    """The open flight that a reply names. Raises CallerError for any other reply."""
    flight = state.flights.get(flight_id) if isinstance(flight_id, int) else None
    if flight is None or flight.kind is not kind:
        found = "nothing in flight" if flight is None else f"a {flight.kind}"
        raise CallerError(
            f"flight {flight_id}: expected a {kind} in flight, found {found}; "
            "answer every action exactly once"
        )
    return flight


def add_legs(
    state: State, flight: Flight, index: int, nodes: Sequence[Node], target: Pages
) -> None:
    """Add one leg for each node: copy the node's pages of the component to the next `target` pages.
    The source pages are on loan until the reply. A store has no target pages."""
    tier = DEVICE if flight.kind is _BACKUP else HOST
    start = 0
    for node in nodes:
        source = copy_of(node, tier, index)
        leg = Leg(flight, node, index, source, target[start : start + len(source)])
        start += len(source)
        flight.legs.append(leg)
        node.legs += (leg,)
        state.pools[tier][index].lend(source)
        state.touched[node.id] = node
    if start != len(target) and flight.kind is not FlightKind.STORE:
        raise CoreBug(f"{flight} copies {start} pages to {len(target)}")


def copies_of(state: State, flight: Flight) -> tuple[Copy, ...]:
    """The legs in the form that an action carries."""
    names = state.config.components
    return tuple(Copy(names[leg.component], leg.source, leg.target) for leg in flight.legs)


def end_leg(state: State, leg: Leg, target: int, adopt: bool) -> bool:
    """End one leg. target: the tier that was copied to. With `adopt`, the node takes over the
    target pages if it has no copy there; otherwise they are freed. Returns whether it took them."""
    index, node = leg.component, leg.node
    state.pools[1 - target][index].repay(leg.source)
    if node is not None:
        drop_leg(node, leg)
        state.touched[node.id] = node
        if adopt and node.pages[target][index] is None:
            attach(state, node, target, index, leg.target)
            return True
    state.pools[target][index].give_back(leg.target)
    return False


def close_flight(state: State, flight: Flight) -> None:
    """Close a flight whose legs have ended: end its other loans and release its locks."""
    if flight.legs or state.flights.pop(flight.id, None) is not flight:
        raise CoreBug(f"{flight} is closed with {len(flight.legs)} legs")
    for index, pages in enumerate(flight.lent):
        state.pools[DEVICE][index].repay(pages)
    if flight.kind is _BACKUP:
        state.backups -= 1
        if state.backups < 0:
            raise CoreBug(f"{flight} ends, and fewer than no backups are left")
    if flight.evicts:
        _stop_evicting(state, flight)
    for index, count in enumerate(flight.gives_up):
        state.giving_up[index] -= count
    if flight.receipt is not None:
        release(state, flight.receipt)


def evict_with(state: State, flight: Flight, index: int, pages: int) -> None:
    """Note that an eviction waits for this backup: after it, `pages` device pages of a component
    can be evicted."""
    if flight.kind is not _BACKUP or pages < 1:
        raise CoreBug(f"{flight} is to evict {pages} pages")
    flight.evicts = True
    flight.frees[index] = pages
    state.writing_back[index] += pages


def forget_nodes(state: State, flight: Flight) -> None:
    """The tree is flushed while the flight is open: its legs belong to no node any more, and no
    eviction waits for it."""
    if flight.evicts:
        _stop_evicting(state, flight)
    flight.receipt = None
    for leg in flight.legs:
        leg.node = None


def _stop_evicting(state: State, flight: Flight) -> None:
    flight.evicts = False
    for index, pages in enumerate(flight.frees):
        state.writing_back[index] -= pages
        if state.writing_back[index] < 0:
            raise CoreBug(f"{flight} ends, and fewer than no pages are written back")
        flight.frees[index] = 0
