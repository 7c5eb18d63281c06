"""Bugs in `backup`: when pages are copied to host, and what becomes of the copies."""

from __future__ import annotations

from typing import Any

from hicache.core import backup, flights
from hicache.core.actions import Evicted, KvStored
from hicache.core.radix import locks
from hicache.core.types import Tier

from .base import Patch, bug

_add_legs = backup._add_legs
_fitting = backup._fitting
_begin_backup = backup.begin_backup
_consider = backup.consider
_land_backup = backup.land_backup
_may_publish = backup.may_publish
_missing_on_host = backup.missing_on_host
_close_flight = flights.close_flight


@bug(backup, "consider", kills="spec")
def backup_starts_one_use_early(state: Any, path: list[Any]) -> None:
    """What is to be backed up at its second use is backed up at its first."""
    for node in path:
        node.hits += 1
    _consider(state, path)
    for node in path:
        node.hits -= 1


@bug(backup, "consider", kills="spec")
def no_copy_begins_after_an_eviction(state: Any, path: list[Any]) -> None:
    """A use begins no copy to host if something was evicted in the same operation."""
    if not any(type(item) is Evicted for item in state.out):
        _consider(state, path)


@bug(backup, "consider", kills="spec")
def one_backup_fewer_than_allowed(state: Any, path: list[Any]) -> None:
    """One backup fewer than the limit is under way at most."""
    if state.backups + 1 < state.config.max_backups:
        _consider(state, path)


@bug(backup, "consider", rows=("G2",), kills="spec")
def split_nodes_are_never_backed_up(state: Any, path: list[Any]) -> None:
    """A node that is split before its backup is due is never backed up, nor what is below."""
    _consider(state, [node for node in path if not node.children])


@bug(backup, "missing_on_host", rows=("G6",), kills="spec")
def only_backbone_is_backed_up(state: Any, node: Any) -> list[int]:
    """Only full attention is copied to host."""
    return [index for index in _missing_on_host(state, node) if not index]


@bug(backup, "missing_on_host", kills="spec")
def page_is_backed_up_again_meanwhile(state: Any, node: Any) -> list[int]:
    """A use of pages whose backup is in flight begins a second one, whose copies are thrown
    away."""
    legs, node.legs = node.legs, []
    try:
        return _missing_on_host(state, node)
    finally:
        node.legs = legs


@bug(backup, "begin_backup", rows=("C7",), kills="lock-bal")
def backup_source_is_not_locked(state: Any, nodes: Any, asked: int = -1, pages: int = 0) -> bool:
    """The source pages of a backup can be evicted and overwritten before they are copied."""
    if not _begin_backup(state, nodes, asked, pages):
        return False
    receipt = state.flights[state.next_flight - 1].receipt
    for index, entries in enumerate(receipt.locked):
        sources = [one for one in entries if one[1] == 0]
        entries[:] = [one for one in entries if one[1] != 0]
        locks._unlock(state, receipt, sources, index)
    return True


@bug(backup, "begin_backup", rows=("J7",), kills="spec")
def write_back_counted_twice(state: Any, nodes: list[Any], asked: int = -1, pages: int = 0) -> bool:
    """Pages that an eviction waits for are counted twice until they are copied."""
    begun = _begin_backup(state, nodes, asked, pages)
    if begun and asked >= 0:
        state.writing_back[asked] += pages
    return begun


@bug(backup, "_add_legs", rows=("C10",), kills="own-h")
def backup_target_is_not_reserved(state: Any, flight: Any, index: int, *rest: Any) -> None:
    """The host pages that a backup writes can be given to another backup meanwhile."""
    _add_legs(state, flight, index, *rest)
    for leg in flight.legs:
        if leg.component == index:
            state.pools[Tier.HOST][index].give_back(leg.target)


@bug(backup, "_fitting")
def copies_to_host_evict_nothing(state: Any, nodes: list[Any]) -> list[Any]:
    """A copy to host needs pages that are free; none are evicted for it."""
    fitting: list[Any] = _fitting(state, nodes)
    while fitting:
        wanted = [0] * len(state.components)
        for node, components in fitting:
            for index in components:
                wanted[index] += len(node.pages[0][index])
        if all(count <= pool.free for count, pool in zip(wanted, state.pools[1], strict=True)):
            break
        fitting = fitting[:-1]
    return fitting


@bug(rows=("B6",), kills="lock-bal")
def backup_lock_released_only_by_a_prefill(patch: Patch) -> None:
    """Locks of backups are released only when a prefill ends."""
    parked: list[tuple[Any, Any]] = []

    def park(state: Any, flight: Any, ok: bool) -> None:
        if flight.receipt is not None:
            parked.append((state, flight.receipt))
        flight.receipt = None
        _land_backup(state, flight, ok)

    def unpark(state: Any, flight: Any) -> None:
        _close_flight(state, flight)
        if flight.kind == "prefill":
            for of, receipt in parked:
                if of is state:
                    locks.release(state, receipt)
            parked.clear()

    patch(backup, "land_backup", park)
    patch(flights, "close_flight", unpark)


@bug(backup, "land_backup", rows=("B12",), kills="lock-bal")
def backup_reply_releases_a_lock_not_taken(state: Any, flight: Any, ok: bool) -> None:
    """Under write_back the reply to a backup releases a lock that it has never taken."""
    nodes = [leg.node for leg in flight.legs if leg.node is not None]
    _land_backup(state, flight, ok)
    for node in nodes if state.writes.on_evict else ():
        above = node
        while above.parent is not None:
            holders = above.locks[0][0]
            if len(holders) == 1:
                holders.clear()
                state.pools[0][0].protected -= len(above.pages[0][0])
                state.touched[above.id] = above
            above = above.parent


@bug(backup, "land_backup", rows=("G5",), kills="spec")
def backups_in_flight_never_decrease(state: Any, flight: Any, ok: bool) -> None:
    """Finished backups still count as in flight, until no more may begin."""
    _land_backup(state, flight, ok)
    state.backups += 1


@bug(backup, "land_backup", rows=("A7",), faults=("submit error", "fail", "late error"))
def failed_backup_freed_twice(state: Any, flight: Any, ok: bool) -> None:
    """The host pages of a copy that failed are released by two owners."""
    legs = list(flight.legs)
    _land_backup(state, flight, ok)
    for leg in () if ok else legs:
        state.pools[Tier.HOST][leg.component].give_back(leg.target)


@bug(backup, "land_backup", rows=("C16",), kills="bytes", faults=("fail", "torn whole"))
def failed_backup_is_published(state: Any, flight: Any, ok: bool) -> None:
    """The host pages of a copy that failed are put into the tree."""
    _land_backup(state, flight, True)


@bug(backup, "land_backup", rows=("G11",), kills="own-h", faults=("fail", "torn"))
def failed_backup_keeps_its_host_pages(state: Any, flight: Any, ok: bool) -> None:
    """The host pages of a copy that failed are never given back."""
    for leg in () if ok else flight.legs:
        leg.target = leg.target[:0]
    _land_backup(state, flight, ok)


@bug(
    backup,
    "land_backup",
    kills="lock-bal",
    faults=(
        "fail",
        "submit error",
        "late error",
        "torn",
        "torn suffix",
        "torn half",
        "torn last page",
        "torn whole",
    ),
)
def failed_backup_keeps_its_lock(state: Any, flight: Any, ok: bool) -> None:
    """A backup that fails never gives back the locks that it took."""
    if not ok:
        flight.receipt = None
    _land_backup(state, flight, ok)


@bug(backup, "land_backup", kills="spec")
def failed_write_back_is_tried_for_ever(state: Any, flight: Any, ok: bool) -> None:
    """A page whose write-back failed is written back again, however often it fails."""
    nodes = [leg.node for leg in flight.legs if leg.node is not None]
    _land_backup(state, flight, ok)
    for node in nodes:
        node.host_refused = 0


@bug(backup, "land_backup", rows=("L2",), kills="event-mirror")
def split_copy_publishes_lower_half_only(state: Any, flight: Any, ok: bool) -> None:
    """If a node is split during its copy, only the lower half is published."""
    begun = len(state.out)
    _land_backup(state, flight, ok)
    told = [item for item in state.out[begun:] if type(item) is KvStored]
    for item in told[:-1]:
        state.out.remove(item)


@bug(backup, "may_publish", kills="spec")
def copies_below_locked_nodes_are_dropped(state: Any, flight: Any, node: Any, index: int) -> bool:
    """A copy is dropped if the host copy of the node above it is locked."""
    locked = not index and any(node.parent.locks[1])
    return not locked and _may_publish(state, flight, node, index)


@bug(backup, "may_publish", kills="parent-bk")
def host_copy_below_uncopied_parent(state: Any, flight: Any, node: Any, index: int) -> bool:
    """A host copy is published below a parent that has none."""
    return True


@bug(backup, "may_publish", kills="spec", components=("full", "swa"))
def windows_on_host_need_their_parents(state: Any, flight: Any, node: Any, index: int) -> bool:
    """The copy of a window is dropped unless the node above has its own on host."""
    above = node.parent
    gap = index and above.parent is not None and above.pages[1][index] is None
    return not gap and _may_publish(state, flight, node, index)
