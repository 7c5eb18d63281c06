"""Copies between the tiers: when they begin, and what becomes of them when their reply comes.

    load      host to device, for a request that reuses a prefix
    backup    device to host: after enough uses, or because an eviction waits for it

Nothing is copied that is on the other tier or on its way there. A source stays where it is until
the reply. A target belongs to the copy until then, and goes to the node of its source if that still
needs it.
"""

from itertools import groupby, takewhile

from hicache.core.actions import Backup, Copy, Load
from hicache.core.types import Tier

from . import eviction
from .cache import Cache
from .kinds import FULL
from .records import DEVICE, HOST, Hold, Move, Node, Request, Transfer, as_pages

Wanted = list[tuple[Node, list[int]]]  # nodes of one path, parents first, and their kinds


# -- to host


def after_use(cache: Cache, path: list[Node]) -> None:
    """A request used this path. Copies its leading nodes that were used often enough, as far as
    they are not on host, if no more copies are under way than may be."""
    uses = cache.writes.uses
    under_way = [transfer for transfer in cache.transfers.values() if transfer.to == HOST]
    if not uses or not cache.config.has_host or len(under_way) >= cache.config.max_backups:
        return
    lacking = [(node, kinds) for node in path if (kinds := lacking_on_host(cache, node))]
    due = list(takewhile(lambda pair: pair[0].hits >= uses, lacking))
    if due:
        copy_to_host(cache, due, {})


def lacking_on_host(cache: Cache, node: Node) -> list[int]:
    """The kinds of the node that are on device, needed, and neither on host nor on their way."""
    coming = {item.source for transfer in cache.transfers.values() for item in transfer.moves}
    return [
        kind
        for kind, pages in enumerate(node.copies[DEVICE])
        if pages is not None
        and not node.has(HOST, kind)
        and cache.capacity(HOST, kind)
        and coming.isdisjoint(pages)
        and (kind == FULL or not cache.is_unreachable(node, kind))
    ]


def copy_to_host(cache: Cache, wanted: Wanted, frees: dict[int, int]) -> bool:
    """Begins one copy of the leading nodes for which host has room if everything goes that may.
    Whether there was room for any. It holds what it copies, and full attention above that on both
    tiers: this may not go. frees: see Transfer."""
    above: Hold = set()
    for node in cache.down_to(wanted[-1][0]):
        hold(above, node, HOST, FULL)
    kinds = range(len(cache.kinds))
    free = [
        cache.available(HOST, kind, above) - eviction.kept_for_exchanges(cache, kind)
        for kind in kinds
    ]
    while any(_pages(wanted, kind) > max(0, free[kind]) for kind in kinds):
        wanted = wanted[:-1]
    if not wanted:
        return False
    transfer = begin(cache, HOST)
    for node in cache.down_to(wanted[-1][0]):
        hold(transfer.hold, node, DEVICE, FULL)
        hold(transfer.hold, node, HOST, FULL)
    for node, missing in wanted:
        for kind in missing:
            hold(transfer.hold, node, DEVICE, kind)
    for kind in kinds:
        count = _pages(wanted, kind)
        if count and not eviction.make_room(cache, HOST, kind, count):
            raise AssertionError("host has no room for pages that were to fit")
    add_moves(
        cache, transfer, [(kind, node) for kind in kinds for node, all_ in wanted if kind in all_]
    )
    transfer.frees = frees
    cache.say(Backup(transfer.number, in_words(cache, transfer)))
    return True


def _pages(wanted: Wanted, kind: int) -> int:
    return sum(len(node.pages(DEVICE, kind)) for node, missing in wanted if kind in missing)


def end_backup(cache: Cache, transfer: Transfer, ok: bool) -> None:
    """A copy to host ended. Its pages go to the nodes that may have them, else they are free. What
    host did not take when it was to be evicted is noted: next time it is dropped."""
    for node, kind, targets in _by_node(cache, transfer):
        node.refused_by_host.discard(kind)
        if not ok and transfer.frees:
            node.refused_by_host.add(kind)
        if ok and not node.has(HOST, kind) and may_be_added(cache, node, kind, but=[transfer]):
            add(cache, node, HOST, kind, targets)
    end(cache, transfer)


def may_be_added(cache: Cache, node: Node, kind: int, but: list[Transfer]) -> bool:
    """Whether a host copy leaves no gap and no copy that could not be evicted.

    A gap, unless the write policy allows it: full attention without that of the parent, and
    another kind without full attention. A copy above or beside one that somebody holds could not be
    evicted; what transfers for storage hold does not matter, since they will hold it too. but: the
    transfer that brings it.
    """
    gaps, kept = cache.writes.gaps, cache.holds(but, storage=False)
    if kind != FULL:
        return gaps or node.has(HOST, FULL)
    stuck = node.any_in_use(kept, HOST) or any(
        child.is_in_use(kept, HOST, FULL) for child in node.children
    )
    above = cache.down_to(node)[:-1]
    return not stuck and (gaps or not above or above[-1].has(HOST, FULL))


# -- to device


def begin_loading(
    cache: Cache, transfer: Transfer, request: Request, loads: list[tuple[int, Node]]
) -> None:
    """loads: (kind, node), all nodes of one kind after those of another, parents first."""
    add_moves(cache, transfer, loads)
    request.load = transfer
    cache.say(Load(transfer.number, request.number, in_words(cache, transfer)))


def arrive(cache: Cache, transfer: Transfer) -> None:
    """The bytes of a load are there, at its own reply or at that of the pass that read them. Nodes
    get the pages; a node that got a copy meanwhile keeps that, and the request uses it too. If the
    request is gone, its last pass holds what it still reads."""
    request = transfer.request
    passes = [item for item in cache.transfers.values() if item.to is None and item.request is None]
    for node, kind, targets in _by_node(cache, transfer):
        if not node.has(DEVICE, kind):
            add(cache, node, DEVICE, kind, targets)
            readers = [item for item in passes if not item.on_loan[kind].isdisjoint(targets)]
            for reader in readers[-1:]:
                reader.hold.update(targets)
        if request is not None:
            hold(request.hold, node, DEVICE, kind)
            if cache.kinds[kind].per_page:
                request.tables[kind][node.start : node.end] = node.pages(DEVICE, kind)
    transfer.moves, transfer.request = [], None
    if request is not None:
        request.load = None


# -- all transfers


def begin(cache: Cache, to: Tier | None, request: Request | None = None) -> Transfer:
    cache.last_transfer += 1
    transfer = Transfer(cache.last_transfer, to, request)
    cache.transfers[transfer.number] = transfer
    return transfer


def end(cache: Cache, transfer: Transfer) -> None:
    """The reply came: what it held and what was on loan to it is so no longer."""
    del cache.transfers[transfer.number]


def add_moves(cache: Cache, transfer: Transfer, wanted: list[tuple[int, Node]]) -> None:
    """The transfer copies these to new pages of the other tier."""
    for kind, node in wanted:
        source = node.pages(HOST if transfer.to == DEVICE else DEVICE, kind)
        pairs = zip(source, cache.new_pages(len(source)), strict=True)
        transfer.moves += [Move(kind, *pair) for pair in pairs]


def hold(whose: Hold, node: Node, tier: Tier, kind: int) -> None:
    """Adds the node's copy to the hold, if there is one."""
    whose.update(node.copies[tier][kind] or ())


def add(cache: Cache, node: Node, tier: Tier, kind: int, pages: list[int]) -> None:
    """The node has these pages now. Transfers for storage that hold a host copy of it or right
    below it hold those on all its path."""
    cache.put(node, tier, kind, pages)
    if kind != FULL:
        return
    cache.tell_routers(tier, node, stored=True)
    for transfer in cache.storage.values() if tier == HOST else ():
        below = any(child.is_in_use(transfer.hold, HOST, FULL) for child in node.children)
        if below or node.any_in_use(transfer.hold, HOST):
            for above in cache.down_to(node):
                hold(transfer.hold, above, HOST, FULL)


def nodes_of(cache: Cache, transfer: Transfer) -> list[Node]:
    """The nodes that a transfer copies."""
    return [node for node, *_ in _by_node(cache, transfer)]


def _by_node(cache: Cache, transfer: Transfer) -> list[tuple[Node, int, list[int]]]:
    """What the transfer copies, in this order: (node, kind, targets). Copies of nodes that are gone
    since a flush are left out."""
    source = HOST if transfer.to == DEVICE else DEVICE
    targets = {move.source: move.target for move in transfer.moves}
    moved = [
        (node, kind, [targets[page] for page in node.pages(source, kind)])
        for kind in range(len(cache.kinds))
        for node in cache.held_nodes({move.source for move in transfer.of(kind)}, source, kind)
    ]
    return sorted(moved, key=lambda item: (item[1], item[0].end))


def in_words(cache: Cache, transfer: Transfer) -> tuple[Copy, ...]:
    """The transfer in the form that an action carries."""
    copies = []
    for kind, group in groupby(transfer.moves, key=lambda move: move.kind):
        source, target = zip(*((move.source, move.target) for move in group), strict=True)
        copies.append(Copy(cache.kinds[kind].name, as_pages(source), as_pages(target)))
    return tuple(copies)
