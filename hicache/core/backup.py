"""Copies to host: when a node is hot enough, and when an eviction asks for it first.

Under a policy that keeps host copies contiguous, a copy is published only below a parent's copy:
parents lead in every batch, batches land in order, and a copy whose parent's failed is given back.
"""

from __future__ import annotations

from .actions import Backup, Copy
from .errors import CoreBug
from .eviction import make_host_room
from .locks import lock, open_receipt, release
from .node import Flight, Leg, Node
from .state import State
from .tree import BACKBONE, attach
from .types import Pages, Tier


def consider(state: State, path: list[Node]) -> None:
    """Begin the backups that a request's use of this path makes due."""
    threshold = state.writes.threshold
    if not threshold or not state.config.has_host or state.backups >= state.config.max_backups:
        return
    due: list[Node] = []
    for node in path:
        if node.pages[Tier.HOST][BACKBONE] is not None or _is_being_backed_up(node):
            continue
        if node.hits < threshold:
            break
        due.append(node)
    if due:
        begin_backup(state, due, drains=0)


def begin_backup(state: State, nodes: list[Node], drains: int) -> bool:
    """Queue a copy of these nodes (of one path, parents first); the deepest that find no room on
    host are left out. False if there was room for none."""
    pool = state.pools[Tier.HOST][BACKBONE]
    fitting = _fitting(state, nodes)
    if not fitting:
        return False
    receipt = open_receipt(state, f"backup {state.next_flight}")
    above = _path_to(fitting[-1][0])
    lock(state, receipt, above, Tier.DEVICE)
    lock(state, receipt, above, Tier.HOST)
    count = sum(len(source) for _, source in fitting)
    if not make_host_room(state, count):
        raise CoreBug(f"{pool}: {count} pages were to be had, {pool.free} are free")
    flight = Flight(state.next_flight, "backup", -1, receipt, drains=drains)
    state.next_flight += 1
    state.flights[flight.id] = flight
    target = pool.reserve(count, flight.id)
    start = 0
    for node, source in fitting:
        leg = Leg(flight, node, BACKBONE, source, target[start : start + len(source)])
        start += len(source)
        flight.legs.append(leg)
        node.legs.append(leg)
        state.pools[Tier.DEVICE][BACKBONE].lend(source)
        state.touched[node.id] = node
    state.backups += 1
    state.draining += drains
    copies = tuple(Copy(pool.component, leg.source, leg.target) for leg in flight.legs)
    state.out.append(Backup(flight.id, copies))
    return True


def _fitting(state: State, nodes: list[Node]) -> list[tuple[Node, Pages]]:
    """The leading nodes that host has room for, once the copies above them are locked."""
    pool = state.pools[Tier.HOST][BACKBONE]
    room = pool.free + pool.evictable
    for node in _path_to(nodes[-1]):
        above = node.pages[Tier.HOST][BACKBONE]
        if above is not None and not node.holders[Tier.HOST][BACKBONE]:
            room -= len(above)
    fitting: list[tuple[Node, Pages]] = []
    for node in nodes:
        source = _device_pages(node)
        room -= len(source)
        if room < 0:
            break
        fitting.append((node, source))
    return fitting


def land_backup(state: State, flight: Flight, ok: bool) -> None:
    """The reply came: publish the copies, or give their pages back."""
    device, host = state.pools[Tier.DEVICE][BACKBONE], state.pools[Tier.HOST][BACKBONE]
    for leg in flight.legs:
        device.repay(leg.source)
        node = leg.node
        if node is None:
            host.give_back(leg.target)
            continue
        node.legs.remove(leg)
        node.unsaved = not ok and flight.drains > 0
        if ok and _may_publish(state, node):
            attach(state, node, Tier.HOST, BACKBONE, leg.target)
        else:
            host.give_back(leg.target)
            state.touched[node.id] = node
    state.backups -= 1
    state.draining -= flight.drains
    if flight.receipt is not None:
        release(state, flight.receipt)


def _may_publish(state: State, node: Node) -> bool:
    parent = node.parent
    if node.with_pages[Tier.HOST] and any(
        child.holders[Tier.HOST][BACKBONE] for child in node.children.values()
    ):
        return False  # unlocked above a lock: neither protected nor within eviction's reach
    return not state.writes.contiguous or (
        parent is not None
        and (parent.parent is None or parent.pages[Tier.HOST][BACKBONE] is not None)
    )


def _is_being_backed_up(node: Node) -> bool:
    return any(leg.flight.kind == "backup" for leg in node.legs)


def _device_pages(node: Node) -> Pages:
    pages = node.pages[Tier.DEVICE][BACKBONE]
    assert pages is not None, f"{node} has nothing to back up"
    return pages


def _path_to(node: Node) -> list[Node]:
    path: list[Node] = []
    above: Node | None = node
    while above is not None and above.parent is not None:
        path.append(above)
        above = above.parent
    return path[::-1]
