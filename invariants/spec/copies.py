"""Copies between the tiers: when they begin, and what becomes of them when their reply comes.

    load      host to device, for a request that reuses a prefix
    backup    device to host: after enough uses, or because an eviction waits for it

A source stays where it is until the reply. A target belongs to the copy until then, and goes to the
node of its source if that still needs it.
"""

from __future__ import annotations

from itertools import groupby

from hicache.core.actions import Backup, Copy, Load
from hicache.core.types import Tier

from . import eviction, second_chance
from .cache import Cache
from .kinds import FULL
from .records import DEVICE, HOST, Flight, Hold, Move, Node, Request, as_pages

Wanted = list[tuple[Node, list[int]]]  # nodes of one path, parents first, and their kinds


# -- to host


def copy_after_use(cache: Cache, path: list[Node]) -> None:
    """A request used this path: begins the copies that are due. A node is due after enough uses; a
    node that is not yet due ends the search, since children are copied after their parents."""
    running = sum(flight.to == HOST for flight in cache.flights.values())
    uses = cache.writes.uses
    if not uses or not cache.config.has_host or running >= cache.config.max_backups:
        return
    due: Wanted = []
    for node in path:
        missing = missing_on_host(cache, node)
        if missing and node.hits < uses:
            break
        if missing:
            due.append((node, missing))
    if due:
        begin_backup(cache, due, {})


def missing_on_host(cache: Cache, node: Node) -> list[int]:
    """The kinds of the node that are on device, needed, and neither on host nor on their way."""
    coming = {
        move.source
        for flight in cache.flights.values()
        if flight.to == HOST
        for move in flight.moves
    }
    return [
        kind
        for kind, pages in enumerate(node.copies[DEVICE])
        if pages is not None
        and not node.has(HOST, kind)
        and cache.capacity(HOST, kind)
        and coming.isdisjoint(pages)
        and (kind == FULL or not cache.is_garbage(node, kind))
    ]


def begin_backup(cache: Cache, wanted: Wanted, frees: dict[int, int]) -> bool:
    """Begins one copy to host of the leading nodes for which host has room. Whether there was room
    for any. It holds what it copies, and full attention above that on both tiers."""
    wanted = _that_fit(cache, wanted)
    if not wanted:
        return False
    flight = begin(cache, HOST)
    for node in cache.path_to(wanted[-1][0]):
        hold(flight.hold, node, DEVICE, FULL)
        hold(flight.hold, node, HOST, FULL)
    for node, kinds in wanted:
        for kind in kinds:
            hold(flight.hold, node, DEVICE, kind)
    kinds_first = [
        (kind, node) for kind in range(len(cache.kinds)) for node, kinds in wanted if kind in kinds
    ]
    for kind in range(len(cache.kinds)):
        count = sum(len(node.pages(DEVICE, one)) for one, node in kinds_first if one == kind)
        if count and not eviction.make_host_room(cache, kind, count):
            raise AssertionError(f"host has no room for {count} pages that were to fit")
    for kind, node in kinds_first:
        source = node.pages(DEVICE, kind)
        moves = zip(source, cache.take(len(source)), strict=True)
        flight.moves += [Move(kind, *pair) for pair in moves]
    flight.frees = frees
    cache.say(Backup(flight.number, said(cache, flight)))
    return True


def _that_fit(cache: Cache, wanted: Wanted) -> Wanted:
    """The leading nodes for which host has room, if everything goes that may. The copies above them
    may not: the backup will hold them."""
    kinds = range(len(cache.kinds))
    room = [cache.available(HOST, kind) - eviction.kept_free(cache, kind) for kind in kinds]
    held = cache.held()
    for node in cache.path_to(wanted[-1][0]):
        if node.has(HOST, FULL) and not node.is_held(held, HOST, FULL):
            room[FULL] -= len(node.rows)
    fitting: Wanted = []
    for node, missing in wanted:
        for kind in missing:
            room[kind] -= len(node.pages(DEVICE, kind))
        if min(room) < 0:
            break
        fitting.append((node, missing))
    return fitting


def end_backup(cache: Cache, flight: Flight, ok: bool) -> None:
    """A copy to host ended. Its pages go to the nodes that may have them, else they are free. What
    host did not take when it was to be evicted is noted: next time it is dropped."""
    for node, kind, target in _by_node(cache, flight, DEVICE):
        if ok or not flight.frees:
            node.refused_by_host.discard(kind)
        else:
            node.refused_by_host.add(kind)
        if ok and not node.has(HOST, kind) and may_have(cache, node, kind, but=flight):
            attach(cache, node, HOST, kind, target)
    flight.moves = []
    end(cache, flight)


def may_have(cache: Cache, node: Node, kind: int, but: Flight | None = None) -> bool:
    """Whether a host copy may be added. Unless copies are made before evictions, full attention
    needs its parent's host copy, and another kind the node's own. A copy above or beside one that
    somebody holds could not be evicted; what flights for storage hold does not matter, since they
    will hold it too. but: the flight that brings it."""
    contiguous, held = not cache.writes.before_eviction, cache.held_here(but=but)
    if kind != FULL:
        return node.has(HOST, FULL) or not contiguous
    below = any(child.is_held(held, HOST, FULL) for child in node.children)
    if below or node.any_held(held, HOST):
        return False
    above = node.parent
    return not contiguous or above is cache.root or (above is not None and above.has(HOST, FULL))


# -- to device


def begin_load(
    cache: Cache, flight: Flight, request: Request, loads: list[tuple[int, Node]]
) -> None:
    """loads: (kind, node), all nodes of one kind after those of another, parents first."""
    for kind, node in loads:
        source = node.pages(HOST, kind)
        moves = zip(source, cache.take(len(source)), strict=True)
        flight.moves += [Move(kind, *pair) for pair in moves]
    request.load = flight
    cache.say(Load(flight.number, request.number, said(cache, flight)))


def land(cache: Cache, flight: Flight) -> None:
    """The bytes of a load are there, at its own reply or at that of the pass that read them. Nodes
    get the pages; a node that got a copy meanwhile keeps that, and the request uses it too."""
    request = flight.request
    for node, kind, target in _by_node(cache, flight, HOST):
        if not node.has(DEVICE, kind):
            attach(cache, node, DEVICE, kind, target)
        elif request is not None and cache.kinds[kind].per_page:
            request.tables[kind][node.start : node.end] = node.pages(DEVICE, kind)
        if request is not None:
            hold(request.hold, node, DEVICE, kind)
    flight.moves, flight.request = [], None
    if request is not None:
        request.load = None


def landed_nodes(cache: Cache, flight: Flight) -> list[Node]:
    """The nodes of which a load holds host copies."""
    return [node for node in cache.nodes() if node.any_held(flight.hold, HOST)]


# -- all flights


def begin(cache: Cache, to: Tier | None, request: Request | None = None) -> Flight:
    cache.last_flight += 1
    flight = Flight(cache.last_flight, to, request)
    cache.flights[flight.number] = flight
    return flight


def end(cache: Cache, flight: Flight) -> None:
    """The reply came: what it held and what was lent to it is so no longer."""
    del cache.flights[flight.number]


def hold(whose: Hold, node: Node, tier: Tier, kind: int) -> None:
    """Adds the node's copy to the hold, if there is one."""
    whose.update(node.copies[tier][kind] or ())


def attach(cache: Cache, node: Node, tier: Tier, kind: int, pages: list[int]) -> None:
    node.copies[tier][kind] = pages
    if tier == DEVICE and second_chance.is_used(cache):
        second_chance.came(cache, node, kind)
    if kind == FULL:
        cache.tell_routers(tier, node, slice(None), stored=True)
    if kind == FULL and tier == HOST:
        for flight in cache.storage.values():
            below = any(child.is_held(flight.hold, HOST, FULL) for child in node.children)
            if below or node.any_held(flight.hold, HOST):
                for above in cache.path_to(node):
                    hold(flight.hold, above, HOST, FULL)


def nodes_of(cache: Cache, flight: Flight) -> list[Node]:
    """The nodes that a transfer copies."""
    return [node for node, *_ in _by_node(cache, flight, HOST if flight.to == DEVICE else DEVICE)]


def _by_node(cache: Cache, flight: Flight, source: Tier) -> list[tuple[Node, int, list[int]]]:
    """What the transfer copies, node by node: (node, kind, targets). Copies of
    nodes that are gone since a flush are left out."""
    owners = {
        page: (node, kind)
        for node in cache.nodes()
        for kind, pages in enumerate(node.copies[source])
        for page in pages or ()
    }
    moves = [move for move in flight.moves if move.source in owners]
    return [
        (node, kind, [move.target for move in group])
        for (node, kind), group in groupby(moves, key=lambda move: owners[move.source])
    ]


def said(cache: Cache, flight: Flight) -> tuple[Copy, ...]:
    """The transfer in the form that an action carries."""
    found = []
    for kind, group in groupby(flight.moves, key=lambda move: move.kind):
        moves = list(group)
        source, target = [move.source for move in moves], [move.target for move in moves]
        found.append(Copy(cache.kinds[kind].name, as_pages(source), as_pages(target)))
    return tuple(found)
