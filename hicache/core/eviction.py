"""Making room: what leaves a tier, and what is copied to host before it does.

What an eviction from the device does with the coldest copy:

    backed up       demoted: the node stays, on host only
    not backed up   the write_back policy copies it to host first (it *writes it back*): with the
                    reply it is backed up and unlocked, and a later eviction demotes it; under
                    another policy, or if host has no room, it is deleted
    unreachable     not copied: deleted, or demoted if the node is on host already

A leaf is evicted with all its components, whichever is wanted, the last component first. On any
other node, on a node with a lock, and on a leaf that is not on host while what is below it is,
evicting a component other than the backbone leaves a tombstone: what is below needs this prefix.

Never skip ahead: while a colder page of the backbone is being written back, an eviction of the
backbone takes neither a warmer page nor one warmer than the prefix above it, because that prefix
can be evicted next. A copy to host that no eviction asked for also holds back warmer pages: a host
tier must not change the eviction order.

What an eviction from host does:

    backbone   on host only: pages are deleted from the end of the coldest leaf, with its other
               components; also on device: all host copies of the node are freed
    others     on a leaf that is on host only: pages are deleted from its end, too, but for a state
               the whole leaf; elsewhere: a tombstone

Host copies of nodes that are also on device are evicted last, because nothing is lost with them. No
more is freed than was asked for, rounded up to a page (for tombstones, to a node), except for nodes
that no request could use any more: those below a deleted node, and leaves that lost their last
live boundary. Which copy is coldest: see `lru` and the eviction policies.
"""

from itertools import chain

from .actions import Backup, Evicted
from .errors import CoreBug
from .lru import ALSO_ON_DEVICE, is_unreachable, next_victim, offer
from .node import BACKUP, NONE, Node, Transfer, copy_of, is_locked
from .state import State
from .transfers import (
    add_segments,
    copies_of,
    end_segment,
    evict_with,
    lock,
    lock_for_storage,
    open_receipt,
    open_transfer,
    unlock_deleted,
)
from .tree import detach, is_there, path_to, span, split, truncate, unlink
from .types import BACKBONE, DEVICE, HOST, TIERS, Pages


def make_host_room(state: State, index: int, count: int) -> bool:
    """Evict until `count` host pages are free, besides those kept for exchanges. Returns whether
    they are."""
    pool = state.pools[HOST][index]
    count += kept_free(state, index)
    if pool.free < count:
        evict_host(state, index, count - pool.free)
    return pool.free >= count


def kept_free(state: State, index: int) -> int:
    """Host pages that must stay free for exchanges, less those that loads in flight will free."""
    spare = state.config.exchange_pages
    return max(0, spare[index] - state.giving_up[index]) if spare else 0


def drop_host_copy(state: State, nodes: list[Node]) -> None:
    """A load has landed: free the host copies of its path that are also on device and that nobody
    has locked."""
    for node in nodes:
        device, host = node.pages
        for index in reversed(range(len(host))):
            twice = device[index] is not None and host[index] is not None
            if twice and node.parent is not None and not node.locks[HOST][index]:
                pages = detach(state, node, HOST, index)
                state.pools[HOST][index].give_back(pages)
        _refile(state, node)


def evict_host(state: State, index: int, count: int) -> None:
    """Free `count` host pages, coldest first; fewer if the rest is in use."""
    pool = state.pools[HOST][index]
    goal = pool.free + count
    queues = state.queues[index][HOST : ALSO_ON_DEVICE + 1]
    while pool.free < goal:
        node = next_victim(queues, state.eviction)
        if node is None:
            return
        short = goal - pool.free
        on_device = node.pages[DEVICE][BACKBONE] is not None
        pages = span(node, state.stride)
        if state.components[index].positional:
            pages = min(short, pages)
        if index != BACKBONE and (on_device or node.children or any(node.locks[HOST])):
            tombstone(state, node, HOST, index)
        elif on_device:
            leave_tier(state, cut_tail(state, node, pages), HOST)
        else:
            delete_tail(state, node, HOST, pages)
        delete_dead(state)


def cut_tail(state: State, node: Node, pages: int) -> Node:
    """Split off the last `pages` pages of a node and return them as a node. Returns the node itself
    if it has no more pages."""
    keep = span(node, state.stride) - pages
    if keep < 0 or pages < 1:
        raise CoreBug(f"{node} is to lose {pages} of its {keep + pages} pages")
    if keep:
        split(state, node, keep)
    return node


def demote(state: State, node: Node) -> None:
    """Free all device copies of the node; it stays on host."""
    leave_tier(state, node, DEVICE)
    _refile(state, node)


def leave_tier(state: State, node: Node, tier: int) -> None:
    """Free all copies that the node has on the tier."""
    for index in range(len(state.components) - 1, -1, -1):
        if node.pages[tier][index] is not None:
            _give_back(state, tier, index, detach(state, node, tier, index), node)


def tombstone(state: State, node: Node, tier: int, index: int) -> None:
    """Free one component of a node that stays in the tree. Later components are freed too if they
    are unlocked and are either on the other tier as well or unreachable."""
    if index == BACKBONE:
        raise CoreBug(f"{node} is to stay without its backbone on {TIERS[tier].name.lower()}")
    _free_copy(state, node, tier, index)
    for later in range(index + 1, len(state.components)):
        if node.pages[tier][later] is None or node.locks[tier][later]:
            continue
        spare = node.pages[1 - tier][later] is not None
        if spare or is_unreachable(node, state.components[later].window_pages):
            _free_copy(state, node, tier, later)
    _refile(state, node)


def delete_tail(state: State, node: Node, tier: int, pages: int) -> None:
    """Delete the last `pages` pages of a node whose backbone is on this tier only.

    Host-only nodes below it are deleted too, because they cannot be matched without their prefix.
    """
    keep = len(node.key) // state.stride - pages
    others = range(BACKBONE + 1, len(state.components))
    if keep and not node.children and not (others and any(is_there(node, i) for i in others)):
        _give_back(state, tier, BACKBONE, truncate(state, node, tier, keep), node)
    elif keep or node.children:
        for below in _postorder(cut_tail(state, node, pages)):
            delete(state, below)
    else:
        delete(state, node)


def delete_dead(state: State) -> None:
    """After an eviction, delete the leaves that lost their last live boundary, and then their
    parents up to the first node that is in use or has a live boundary. No request could use them.
    Only evictions make a leaf lose its boundary: `limit_states` keeps the one at the end."""
    while state.dead:
        node = state.dead.pop()
        if (
            node.parent is not None
            and node.live_distance == NONE
            and not (node.children or node.segments)
            and not is_locked(node)
        ):
            delete(state, node)


def delete(state: State, node: Node) -> None:
    """Delete a node without children and its copies, host first. Its parent may be dead now."""
    above = node.parent
    if above is None:
        raise CoreBug(f"{node} is to be deleted and not in the tree")
    if state.storage_transfers:
        unlock_deleted(state, node)
    for tier in (HOST, DEVICE):
        if len(node.last_use) > 1 or node.pages[tier][BACKBONE] is not None:
            leave_tier(state, node, tier)
    unlink(state, node)
    if not state.every_end_is_live:
        state.dead.append(above)


def _postorder(node: Node) -> list[Node]:
    order = [node]
    for above in order:
        order.extend(above.children.values())
    return order[::-1]


def _refile(state: State, node: Node) -> None:
    """File the node's host copies again: they may now be the only copies, or also on device."""
    for index, pages in enumerate(node.pages[HOST]):
        if pages is not None:
            offer(state.queues, state.eviction, node, HOST, index)


def _free_copy(state: State, node: Node, tier: int, index: int) -> None:
    _give_back(state, tier, index, detach(state, node, tier, index), node)


def _give_back(state: State, tier: int, index: int, pages: Pages, node: Node) -> None:
    pool, demoted = state.pools[tier][index], tier == DEVICE and node.pages[HOST][index] is not None
    pool.give_back(pages)
    state.out.append(Evicted(pool.tier, pool.component, pages, node.last_use[index], demoted))


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
    queues, writing_back = [state.queues[index][DEVICE]], state.writing_back
    goal = pool.free + count
    floor = _floor(state) if index == BACKBONE and pool.free < goal else None
    while (short := goal - pool.free - writing_back[index]) > 0:
        node = next_victim(queues, state.eviction)
        if node is None:
            return
        if index != BACKBONE:
            _evict_copy(state, node, index, short)
        elif floor is not None and node.live_distance != NONE and _rank(state, node) > floor:
            offer(state.queues, state.eviction, node, DEVICE, BACKBONE)
            return
        else:
            above = _evict_leaf(state, node, index, min(short, len(node.key) // state.stride))
            if above is not None and above.parent is not None and not _leaves(above):
                floor = _rank(state, above) if floor is None else min(floor, _rank(state, above))
        if state.dead:
            delete_dead(state)


def _rank(state: State, node: Node) -> int:
    return state.eviction.rank(node, BACKBONE)


def _floor(state: State) -> int | None:
    """The lowest rank among backbone copies that can be evicted when the copies to host in flight
    have ended: parents of nodes that are being written back, and nodes that only backups lock. No
    copy of a higher rank may be evicted before. None if there is no such copy."""
    if not state.backups:
        return None
    backups = [item for item in state.transfers.values() if item.kind is BACKUP]
    receipts = {transfer.receipt.id for transfer in backups if transfer.receipt is not None}
    ranks: list[int] = []
    for transfer in backups:
        if transfer.evicts and transfer.frees[BACKBONE]:
            for segment in transfer.segments:
                above = segment.node.parent if segment.node is not None else None
                if above is not None and above.parent is not None and not _leaves(above):
                    ranks.append(_rank(state, above))
        elif transfer.receipt is not None and not transfer.evicts:
            for node, tier in transfer.receipt.locked[BACKBONE]:
                if tier == DEVICE and all(by.keys() <= receipts for by in node.locks[DEVICE]):
                    ranks.append(_rank(state, node))
    return min(ranks, default=None)


def _leaves(node: Node) -> bool:
    """Whether the node is being written back already."""
    return any(item.transfer.evicts and item.transfer.frees[BACKBONE] for item in node.segments)


def _evict_copy(state: State, node: Node, index: int, short: int) -> None:
    """Evict a component other than the backbone. If it is on host already, it does not wait until
    the other components of its leaf are copied."""
    free = node.with_pages[DEVICE] == 0 and not any(node.locks[DEVICE])
    missing = _to_write_back(state, node, index, full=free)
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
    missing = _to_write_back(state, node, index, full=True) if state.writes.on_evict else []
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


def _to_write_back(state: State, node: Node, index: int, full: bool) -> list[int]:
    """The components that the policy wants on host before this component, or with `full` the whole
    node, leaves the device. Empty if one of them cannot be stored on host: without it the boundary
    is lost anyway."""
    if not state.writes.on_evict or not state.config.has_host:
        return []
    if is_unreachable(node, state.components[index].window_pages):
        return []
    for item in range(len(state.components)) if full else (index,):
        lacking = node.pages[0][item] is not None and node.pages[1][item] is None
        if lacking and (node.host_refused >> item & 1 or not state.pools[HOST][item].capacity):
            return []
    return missing_on_host(state, node)


def _write_back(state: State, node: Node, index: int, components: list[int]) -> bool:
    """Begin the copy that an eviction waits for. Returns False if host has no room."""
    return begin_backup(state, [(node, components)], index, len(copy_of(node, DEVICE, index)))


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
    unreachable, and with a host pool."""
    device, host = node.pages
    if len(device) == 1 and host[BACKBONE] is not None:
        return []
    missing = []
    for index, pages in enumerate(device):
        if pages is None or host[index] is not None or not state.pools[HOST][index].capacity:
            continue
        if index and is_unreachable(node, state.components[index].window_pages):
            continue
        if not any(
            segment.component == index and segment.transfer.kind is BACKUP
            for segment in node.segments
        ):
            missing.append(index)
    return missing


def begin_backup(state: State, nodes: list[Wanted], component: int = -1, pages: int = 0) -> bool:
    """Queue one backup of these nodes' components. nodes: of one path, parents first.

    The deepest nodes are left out if host has too little room. Returns False if it has room for
    none. component, pages: if an eviction waits for the backup, the component that it evicts and
    the device pages that this frees.
    """
    fitting = _fitting(state, nodes)
    if not fitting:
        return False
    transfer = open_transfer(state, BACKUP)
    transfer.receipt = receipt = open_receipt(state, f"backup {transfer.id}")
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
        sum(len(copy_of(node, DEVICE, index)) for node in wanted)
        for index, wanted in enumerate(wanting)
    ]
    for index, count in enumerate(counts):
        if count and not make_host_room(state, index, count):
            raise CoreBug(f"{state.pools[HOST][index]}: {count} pages were to be had")
    for index, count in enumerate(counts):
        if count:
            targets = state.pools[HOST][index].reserve(count, transfer.id)
            add_segments(state, transfer, index, wanting[index], targets)
    if not transfer.segments:
        raise CoreBug(f"{transfer} copies nothing")
    if component >= 0:
        evict_with(state, transfer, component, pages)
    state.out.append(Backup(transfer.id, copies_of(state, transfer)))
    return True


def _fitting(state: State, nodes: list[Wanted]) -> list[Wanted]:
    """The leading nodes that host has room for. The unlocked host copies above them count as used,
    because the backup will lock them."""
    pools = state.pools[HOST]
    free_pages = [pool.available - kept_free(state, index) for index, pool in enumerate(pools)]
    for node in path_to(nodes[-1][0]):
        above = node.pages[HOST][BACKBONE]
        if above is not None and not node.locks[HOST][BACKBONE]:
            free_pages[BACKBONE] -= len(above)
    fitting: list[Wanted] = []
    for node, components in nodes:
        for index in components:
            free_pages[index] -= len(copy_of(node, DEVICE, index))
        if min(free_pages[index] for index in components) < 0:
            break
        fitting.append((node, components))
    return fitting


def land_backup(state: State, transfer: Transfer, ok: bool) -> None:
    """Handle the reply: add the copies to the tree, or free their pages."""
    for segment in transfer.segments:
        node, index = segment.node, segment.component
        if node is None:
            end_segment(state, segment, HOST, adopt=False)
            continue
        bit = 1 << index
        if ok or not transfer.evicts:
            node.host_refused &= ~bit
        else:
            node.host_refused |= bit
        adopt = ok and may_publish(state, transfer, node, index)
        if end_segment(state, segment, HOST, adopt) and index == BACKBONE:
            lock_for_storage(state, node)
    transfer.segments.clear()  # breaks the reference cycle between transfer and segments


def may_publish(state: State, transfer: Transfer, node: Node, index: int) -> bool:
    """Whether the tree can take a host copy that the transfer has brought for this node. Locks of
    the transfer itself do not count."""
    parent = node.parent
    if index != BACKBONE:
        return not state.writes.contiguous or node.pages[HOST][BACKBONE] is not None
    below = node.children.values() if node.with_pages[HOST] else ()
    beside = chain(node.locks[HOST], (child.locks[HOST][BACKBONE] for child in below))
    own = transfer.receipt
    for receipt in chain.from_iterable(holders.values() for holders in beside):
        if receipt is not own and not receipt.of_storage:
            return False  # an unlocked copy above or beside another's lock could not be evicted
    return not state.writes.contiguous or (
        parent is not None and (parent.parent is None or parent.pages[HOST][BACKBONE] is not None)
    )
