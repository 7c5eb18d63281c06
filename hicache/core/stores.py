"""Stores, copies from host to storage; and storage as a whole: attached, detached, lost, flushed.

A store that fails is tried again after the nodes that wait already. A use of the node gives it all
tries again. When a node is queued: see `core`.

While storage is detached, no action for it begins. Those in flight go on and end: what a fetch
brings is attached to the tree, and what a store writes is not noted.
"""

from .actions import NO_REQUEST, Delete, KvStored, Piece, Refused, Store
from .errors import CallerError
from .events import DeleteDone, DetachWanted, StorageAttached, StoreDone
from .lru import is_unreachable
from .node import DELETE, STORE, Node, Segment, drop_segment
from .prefetch import (
    abandon,
    check_pages,
    close_storage_transfer,
    end_every_wait,
    in_flight,
    oldest,
    open_storage_transfer,
    report_detached,
)
from .state import (
    State,
    believe,
    believed,
    dequeue,
    enqueue,
    forget_storage,
    queued_nodes,
    tells,
    trust,
)
from .transfers import add_segments, lock, open_receipt, transfer_of
from .tree import digests_of, path_to, start_of
from .types import BACKBONE, HOST, NO_PAGES, Tier


def store_backed_up(state: State, nodes: list[Node | None]) -> None:
    """A backup of these nodes has ended. None: the node was flushed."""
    for node in nodes:
        if node is not None and node.parent is not None:
            enqueue(state, node)
    pump(state)


def store_used(state: State, path: list[Node]) -> None:
    """A request has used this path."""
    if not state.attached:
        return
    for node in path:
        known = believed(state, node)
        lacks = any(
            pages is not None and not known >> index & 1
            for index, pages in enumerate(node.pages[HOST])
        )
        if lacks and node.parent is not None and not any(map(_is_store, node.segments)):
            enqueue(state, node)
    pump(state)


def pump(state: State) -> None:
    """Begin the stores that are due, as far as stores may be in flight."""
    if not state.store_queue or in_flight(state, DELETE):
        return
    free = state.config.max_stores - in_flight(state, STORE)
    while free > 0 and state.store_queue:
        node = next(queued_nodes(state))
        dequeue(state, node)
        wanted = _wanted(state, node)
        if wanted:
            _begin_store(state, node, wanted)
            free -= 1


def store_done(state: State, event: StoreDone) -> None:
    transfer = transfer_of(state, event.transfer, STORE)
    total = sum(len(segment.source) for segment in transfer.segments)
    check_pages(transfer, event.pages, total)
    counts = not transfer.abandoned and tells(state, transfer)
    left, failed, nodes = event.pages, {}, {}
    for segment in transfer.segments:
        count = min(left, len(segment.source))
        left -= count
        node = segment.node
        state.pools[HOST][segment.component].repay(segment.source)
        if node is None:
            continue
        drop_segment(node, segment)
        nodes[node.id] = node
        state.touched[node.id] = node
        if count < len(segment.source):
            failed[node.id] = node
        if counts:
            _acknowledge(state, segment, node, count)
    transfer.segments.clear()
    close_storage_transfer(state, transfer)
    if counts:
        _judge(state, list(nodes.values()), list(failed.values()))
    if state.attached:
        pump(state)
    report_detached(state)


def _acknowledge(state: State, segment: Segment, node: Node, count: int) -> None:
    """The first `count` pages of this segment are in storage."""
    digests = digests_of(state, node)
    if not state.components[segment.component].positional:
        digests = digests[-1:]
    trust(state, digests[:count])
    if count == len(segment.source):
        believe(state, node, segment.component)
        if segment.component == BACKBONE and state.config.kv_events:
            state.out.append(KvStored(Tier.STORAGE, digests))


def _judge(state: State, nodes: list[Node], failed: list[Node]) -> None:
    """Count the failure of the nodes that are not stored, and let them wait for another try."""
    for node in failed or nodes:
        node.store_failures = node.store_failures + 1 if failed else 0
    for node in failed:
        if node.store_failures < state.config.store_tries:
            enqueue(state, node)


def _is_store(segment: Segment) -> bool:
    return segment.transfer.kind is STORE


def _wanted(state: State, node: Node) -> list[int]:
    """The components of the node to store now."""
    if node.store_failures >= state.config.store_tries:
        return []
    known = believed(state, node)
    under_way = {segment.component for segment in node.segments if _is_store(segment)}
    return [
        index
        for index, pages in enumerate(node.pages[HOST])
        if pages is not None
        and not known >> index & 1
        and index not in under_way
        and not is_unreachable(node, state.components[index].window_pages)
    ]


def _begin_store(state: State, node: Node, wanted: list[int]) -> None:
    transfer = open_storage_transfer(state, STORE)
    transfer.receipt = receipt = open_receipt(state, f"store {transfer.id}", True)
    lock(state, receipt, path_to(node), HOST)
    for index in wanted:
        lock(state, receipt, [node], HOST, index)
        add_segments(state, transfer, index, (node,), NO_PAGES)
    state.out.append(
        Store(transfer.id, tuple(_piece(state, node, segment) for segment in transfer.segments))
    )


def _piece(state: State, node: Node, segment: Segment) -> Piece:
    first, digests = start_of(node, state.stride), digests_of(state, node)
    if not state.components[segment.component].positional:
        first, digests = node.end_page - 1, digests[-1:]
    return Piece(state.config.components[segment.component], first, digests, segment.source)


def attach_storage(state: State, event: StorageAttached) -> None:
    if not state.config.has_host:
        raise CallerError(
            f"{type(event).__name__}: expected a core with host pages, found host_pages "
            f"{state.config.host_pages}; storage is filled from host"
        )
    if not state.attached and state.storage_transfers:
        name, count = state.config.components[BACKBONE], len(state.storage_transfers)
        after = oldest(state)
        state.out.append(Refused(NO_REQUEST, "detaching", count, 0, NO_REQUEST, name, after))
        return
    state.attached = True
    forget_storage(state)


def detach_storage(state: State, event: DetachWanted) -> None:
    if not state.attached:
        raise CallerError(f"{type(event).__name__}: expected an attached storage, found none")
    state.attached = False
    forget_storage(state)
    end_every_wait(state, "detached")
    for transfer in state.storage_transfers.values():
        abandon(state, transfer)
    report_detached(state)


def begin_flush(state: State) -> None:
    """The tree is about to be flushed: nobody needs what is being fetched or stored for it."""
    end_every_wait(state, "flushed")
    for transfer in state.storage_transfers.values():
        if transfer.kind is not DELETE:
            abandon(state, transfer)
    forget_storage(state)


def delete_stored(state: State) -> None:
    """The tree was flushed: delete what storage has, too."""
    if state.attached:
        transfer = open_storage_transfer(state, DELETE)
        state.out.append(Delete(transfer.id))


def delete_done(state: State, event: DeleteDone) -> None:
    transfer = transfer_of(state, event.transfer, DELETE)
    close_storage_transfer(state, transfer)
    if state.attached:
        pump(state)
    report_detached(state)
