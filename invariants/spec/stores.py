"""Stores: what came to host goes to storage as well, a node at a time.

    copied to host, or used -> waits in line -> store -> believed to be stored

A page is believed to be stored while its node is in the tree, from the reply that says so until
storage is attached anew or detached. A node whose pages storage does not take is tried again; after
so many times it waits for its next use.
"""

from itertools import groupby

from hicache.core.actions import KvStored, Store
from hicache.core.types import Tier

from . import copies
from .cache import Cache
from .fetches import in_runs
from .kinds import FULL
from .records import HOST, Node, Part, StorageTransfer


def came_to_host(cache: Cache, nodes: list[Node]) -> None:
    """These nodes were copied to host."""
    if cache.attached:
        wait_in_line(cache, nodes)
        begin_stores(cache)


def were_used(cache: Cache, path: list[Node]) -> None:
    """A request used this path: what it has on host and storage has not is stored. A node of which
    a store is under way is not."""
    if cache.attached:
        storing = _being_stored(cache)
        idle = [
            node
            for node in path
            if storing.isdisjoint(page for pages in node.copies[HOST] for page in pages or ())
        ]
        wait_in_line(cache, [node for node in idle if _not_stored(cache, node)])
        begin_stores(cache)


def wait_in_line(cache: Cache, nodes: list[Node]) -> None:
    """Each once; a node that waits already keeps its place."""
    cache.to_store = list(dict.fromkeys([*cache.to_store, *nodes]))


def begin_stores(cache: Cache) -> None:
    """Stores what waits, as many nodes at a time as the configuration allows."""
    while (
        cache.to_store
        and not cache.in_flight("delete")
        and len(cache.in_flight("store")) < cache.config.max_stores
    ):
        node, *cache.to_store = cache.to_store
        storing = _being_stored(cache)
        kinds = [
            kind
            for kind in _not_stored(cache, node)
            if storing.isdisjoint(node.pages(HOST, kind)) and not cache.is_unreachable(node, kind)
        ]
        if kinds and node.failures < cache.config.store_tries:
            _store(cache, node, kinds)


def _store(cache: Cache, node: Node, kinds: list[int]) -> None:
    """Reads these host copies. Holds them, and full attention on the path to the node."""
    transfer = cache.begin_storage("store")
    for above in cache.down_to(node):
        copies.hold(transfer.hold, above, HOST, FULL)
    digests = cache.digests(node)
    for kind in kinds:
        copies.hold(transfer.hold, node, HOST, kind)
        for depth, page in zip(cache.positions(node, kind), node.pages(HOST, kind), strict=True):
            transfer.parts.append(Part(kind, depth, digests[depth - node.start], page))
    cache.say(Store(transfer.number, in_runs(cache, transfer)))


def _not_stored(cache: Cache, node: Node) -> list[int]:
    """The kinds that are on host, and not believed to be in storage."""
    on_host = [kind for kind in range(len(cache.kinds)) if node.has(HOST, kind)]
    return [kind for kind in on_host if not cache.believed.issuperset(_stored(cache, node, kind))]


def _being_stored(cache: Cache) -> set[int]:
    return {part.page for transfer in cache.in_flight("store") for part in transfer.parts}


def _stored(cache: Cache, node: Node, kind: int) -> set[tuple[int, bytes]]:
    """What is believed if the node's copy is."""
    digests = cache.digests(node)
    return {(kind, digests[depth - node.start]) for depth in cache.positions(node, kind)}


def believe(cache: Cache, node: Node, kind: int) -> None:
    cache.believed |= _stored(cache, node, kind)


def storage_took(cache: Cache, transfer: StorageTransfer, pages: int) -> None:
    """The reply of a store: so many of its leading pages are durable. A node of which all are is
    believed to be stored; the others are tried again. A storage that was attached since is not
    believed to have any."""
    if not (transfer.abandoned or transfer.outdated):
        durable = transfer.parts[:pages]
        copies_read = [pair for pair in _by_copy(cache, transfer) if pair[0] is not None]
        there = {part.digest for *_, parts in copies_read for part in parts if part in durable}
        cache.distrusted = [data for data in cache.distrusted if data not in there]
        failed: list[Node] = []
        for node, kind, parts in copies_read:
            if node is not None and parts[-1] in durable:
                believe(cache, node, kind)
                node.failures = 0 if pages == len(transfer.parts) else node.failures
                if kind == FULL and cache.config.kv_events:
                    cache.say(KvStored(Tier.STORAGE, tuple(part.digest for part in parts)))
            elif node is not None and node not in failed:
                failed.append(node)
                node.failures += 1
        wait_in_line(cache, [node for node in failed if node.failures < cache.config.store_tries])
    begin_stores(cache)


def _by_copy(cache: Cache, transfer: StorageTransfer) -> list[tuple[Node | None, int, list[Part]]]:
    """What a store reads, copy by copy. Its nodes may have been split since it began; None: of one
    that is gone."""
    owners = {
        page: node for node in cache.nodes for pages in node.copies[HOST] for page in pages or ()
    }
    groups = groupby(transfer.parts, key=lambda part: (owners.get(part.page), part.kind))
    return [(node, kind, list(parts)) for (node, kind), parts in groups]
