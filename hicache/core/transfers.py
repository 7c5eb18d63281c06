"""Receipts and transfers: lock and release; open a transfer, add its segments, end the segments,
close it. What they mean: see `core`. Those of storage: see `prefetch`.
"""

from collections.abc import Sequence
from itertools import chain

from .actions import NO_REQUEST, Copy
from .errors import About, CallerError, CoreBug
from .lru import offer
from .node import (
    BACKUP,
    NOTHING,
    STORE,
    Node,
    Receipt,
    Segment,
    Transfer,
    TransferKind,
    copy_of,
    drop_locks,
    drop_segment,
    own_locks,
)
from .state import State
from .tree import attach, path_to
from .types import BACKBONE, DEVICE, HOST, Pages, RequestId, TransferId


def open_receipt(state: State, holder: str, of_storage: bool = False) -> Receipt:
    receipt = Receipt(state.next_receipt, holder, len(state.components), of_storage)
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
    gone = [entry for entry in entries if entry[1] == DEVICE and entry[0].end_page <= end]
    if gone:
        entries[:] = [entry for entry in entries if entry[1] != DEVICE or entry[0].end_page > end]
        _unlock(state, receipt, gone, index)


def lock_for_storage(state: State, node: Node) -> None:
    """The node got a host copy of the backbone. Fetches and stores that lock a host copy below or
    beside it extend their locks to it and to the path above it."""
    if not state.storage_transfers:
        return
    below = node.children.values() if node.with_pages[HOST] else ()
    beside = chain(node.locks[HOST], (child.locks[HOST][BACKBONE] for child in below))
    holders = {receipt.id: receipt for row in beside for receipt in row.values()}
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
    for segment in node.segments:
        if segment.transfer.kind is not STORE:
            raise CoreBug(f"{node} is to be deleted and {segment.transfer} copies it")
        segment.node = None
    node.segments = ()


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


def open_transfer(state: State, kind: TransferKind, request: RequestId = NO_REQUEST) -> Transfer:
    """A new transfer, without segments, loans or locks. The action carries its number."""
    transfer = Transfer(state.next_transfer, kind, request, len(state.components))
    if transfer.id in state.transfers:
        raise CoreBug(f"{transfer} is in flight already")
    state.next_transfer += 1
    state.transfers[transfer.id] = transfer
    if kind is BACKUP:
        state.backups += 1
    return transfer


def transfer_of(state: State, transfer_id: TransferId, kind: TransferKind) -> Transfer:
    """The open transfer that a reply names. Raises CallerError for any other reply."""
    transfer = state.transfers.get(transfer_id) if isinstance(transfer_id, int) else None
    if transfer is None or transfer.kind is not kind:
        text = "nothing in flight" if transfer is None else f"a {transfer.kind}"
        raise CallerError(
            f"transfer {transfer_id}: expected a {kind} in flight, found {text}; "
            "answer every action exactly once"
        )
    return transfer


def add_segments(
    state: State, transfer: Transfer, index: int, nodes: Sequence[Node], target: Pages
) -> None:
    """Add one segment for each node: copy the node's pages of the component to the next `target`
    pages. The source pages are on loan until the segment ends. A store has no target pages."""
    tier = DEVICE if transfer.kind is BACKUP else HOST
    start = 0
    for node in nodes:
        source = copy_of(node, tier, index)
        segment = Segment(transfer, node, index, source, target[start : start + len(source)])
        start += len(source)
        transfer.segments.append(segment)
        node.segments += (segment,)
        state.pools[tier][index].lend(source)
        state.touched[node.id] = node
    if start != len(target) and transfer.kind is not STORE:
        raise CoreBug(f"{transfer} copies {start} pages to {len(target)}")


def copies_of(state: State, transfer: Transfer) -> tuple[Copy, ...]:
    """The segments in the form that an action carries."""
    names = state.config.components
    return tuple(
        Copy(names[item.component], item.source, item.target) for item in transfer.segments
    )


def end_segment(state: State, segment: Segment, target: int, adopt: bool) -> bool:
    """End one segment. target: the tier that was copied to. With `adopt`, the node takes over the
    target pages if it has no copy there; otherwise they are freed. Returns whether it took them."""
    index, node = segment.component, segment.node
    state.pools[1 - target][index].repay(segment.source)
    if node is not None:
        drop_segment(node, segment)
        state.touched[node.id] = node
        if adopt and node.pages[target][index] is None:
            attach(state, node, target, index, segment.target)
            return True
    state.pools[target][index].give_back(segment.target)
    return False


def close_transfer(state: State, transfer: Transfer) -> None:
    """Close a transfer whose segments have ended: end its other loans and release its locks."""
    if transfer.segments or state.transfers.pop(transfer.id, None) is not transfer:
        raise CoreBug(f"{transfer} is closed with {len(transfer.segments)} segments")
    for index, pages in enumerate(transfer.on_loan):
        state.pools[DEVICE][index].repay(pages)
    if transfer.kind is BACKUP:
        state.backups -= 1
        if state.backups < 0:
            raise CoreBug(f"{transfer} ends, and fewer than no backups are left")
    if transfer.evicts:
        _stop_evicting(state, transfer)
    for index, count in enumerate(transfer.gives_up):
        state.giving_up[index] -= count
    if transfer.receipt is not None:
        release(state, transfer.receipt)


def evict_with(state: State, transfer: Transfer, index: int, pages: int) -> None:
    """Note that an eviction waits for this backup: after it, `pages` device pages of a component
    can be evicted."""
    if transfer.kind is not BACKUP or pages < 1:
        raise CoreBug(f"{transfer} is to evict {pages} pages")
    transfer.evicts = True
    transfer.frees[index] = pages
    state.writing_back[index] += pages


def forget_nodes(state: State, transfer: Transfer) -> None:
    """The tree is flushed while the transfer is open: its segments belong to no node any more, and
    no eviction waits for it."""
    if transfer.evicts:
        _stop_evicting(state, transfer)
    transfer.receipt = None
    for segment in transfer.segments:
        segment.node = None


def _stop_evicting(state: State, transfer: Transfer) -> None:
    transfer.evicts = False
    for index, pages in enumerate(transfer.frees):
        state.writing_back[index] -= pages
        if state.writing_back[index] < 0:
            raise CoreBug(f"{transfer} ends, and fewer than no pages are written back")
        transfer.frees[index] = 0
