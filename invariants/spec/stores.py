"""Stores: what came to host goes to storage as well, a node at a time.

    copied to host, or used -> waits in line -> store -> believed to be stored

A page is believed to be stored while its node is in the tree, from the reply that says so until
storage is attached anew or detached. A node whose pages storage does not take is tried again; after
so many times it waits for its next use.
"""

from __future__ import annotations

from itertools import groupby

from hicache.core.actions import KvStored, Store
from hicache.core.types import Tier

from . import copies
from .cache import Cache
from .fetches import pieces_of
from .kinds import FULL
from .records import HOST, Node, Part, StorageFlight


def after_backup(cache: Cache, nodes: list[Node]) -> None:
    """These nodes were copied to host."""
    if cache.attached:
        line_up(cache, nodes)
        store_next(cache)


def after_use(cache: Cache, path: list[Node]) -> None:
    """A request used this path: what it has on host and storage has not is stored."""
    if not cache.attached:
        return
    for node in path:
        storing = any(_is_storing(cache, node, kind) for kind in range(len(cache.kinds)))
        if _not_stored(cache, node) and not storing:
            line_up(cache, [node])
    store_next(cache)


def line_up(cache: Cache, nodes: list[Node]) -> None:
    """A node that waits already keeps its place."""
    for node in nodes:
        if node not in cache.to_store:
            cache.to_store.append(node)


def store_next(cache: Cache) -> None:
    """Stores what waits, as many nodes at a time as the configuration allows."""
    while cache.attached and cache.to_store and not cache.in_flight("delete"):
        if len(cache.in_flight("store")) >= cache.config.max_stores:
            return
        node = cache.to_store.pop(0)
        kinds = [
            kind
            for kind in _not_stored(cache, node)
            if not _is_storing(cache, node, kind) and not cache.is_garbage(node, kind)
        ]
        if kinds and node.failures < cache.config.store_tries:
            _store(cache, node, kinds)


def _store(cache: Cache, node: Node, kinds: list[int]) -> None:
    """Reads these host copies. Holds them, and full attention on the path to the node."""
    flight = cache.begin_storage("store")
    for above in cache.path_to(node):
        copies.hold(flight.hold, above, HOST, FULL)
    digests = cache.digests(node)
    for kind in kinds:
        copies.hold(flight.hold, node, HOST, kind)
        for depth, page in zip(cache.positions(node, kind), node.pages(HOST, kind), strict=True):
            flight.parts.append(Part(kind, depth, digests[depth - node.start], page))
    cache.say(Store(flight.number, pieces_of(cache, flight)))


def _not_stored(cache: Cache, node: Node) -> list[int]:
    """The kinds that are on host, and not believed to be in storage."""
    on_host = [kind for kind in range(len(cache.kinds)) if node.has(HOST, kind)]
    return [kind for kind in on_host if not cache.believed.issuperset(_stored(cache, node, kind))]


def _is_storing(cache: Cache, node: Node, kind: int) -> bool:
    return any(
        part.page in (node.copies[HOST][kind] or ())
        for flight in cache.in_flight("store")
        for part in flight.parts
        if part.kind == kind
    )


def _stored(cache: Cache, node: Node, kind: int) -> set[tuple[int, bytes]]:
    """What is believed if the node's copy is."""
    digests = cache.digests(node)
    return {(kind, digests[depth - node.start]) for depth in cache.positions(node, kind)}


def believe(cache: Cache, node: Node, kind: int) -> None:
    cache.believed |= _stored(cache, node, kind)


def after_store(cache: Cache, flight: StorageFlight, pages: int) -> None:
    """The reply of a store: so many of its leading pages are durable. A node of which all are is
    believed to be stored; the others are tried again. A storage that was attached since is not
    believed to have any."""
    if not (flight.abandoned or flight.outdated):
        failed: list[Node] = []
        done = 0
        for node, kind, parts in _by_node(cache, flight):
            before, done = done, done + len(parts)
            if node is None:
                continue
            durable = {part.digest for part in parts[: max(0, pages - before)]}
            cache.distrusted = [one for one in cache.distrusted if one not in durable]
            if done > pages:
                failed += [] if node in failed else [node]
                continue
            believe(cache, node, kind)
            if kind == FULL and cache.config.kv_events:
                cache.say(KvStored(Tier.STORAGE, tuple(part.digest for part in parts)))
            if pages == len(flight.parts):
                node.failures = 0
        for node in failed:
            node.failures += 1
        line_up(cache, [node for node in failed if node.failures < cache.config.store_tries])
    store_next(cache)


def _by_node(cache: Cache, flight: StorageFlight) -> list[tuple[Node | None, int, list[Part]]]:
    """What a store reads, copy by copy. Its nodes may have been split since it began; None: of one
    that is gone."""
    owners = {
        page: node for node in cache.nodes() for pages in node.copies[HOST] for page in pages or ()
    }
    groups = groupby(flight.parts, key=lambda part: (owners.get(part.page), part.kind))
    return [(node, kind, list(parts)) for (node, kind), parts in groups]
