"""What leaves a tier when its pages are wanted.

Victims, on either tier, in this order:
    1. copies that no live end requires (garbage),
    2. on host: copies that are on host only before copies that are on device too,
    3. what the eviction policy ranks lowest; of equal ranks, the copy that ends deepest, and of
       these, that of the node that was made first.

A copy can go if it is in nobody's hold. Full attention goes from the leaves up: no child may have
it on the tier, and no other kind of the node may be in a hold.
"""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.types import Tier

from . import copies, marks, second_chance
from .cache import Cache
from .kinds import FULL
from .matching import split
from .records import DEVICE, HOST, Node, as_pages


def make_device_room(cache: Cache, kind: int, count: int) -> bool:
    """Evicts until `count` device pages are free. Whether they are."""
    evict_device(cache, kind, count - cache.free(DEVICE, kind))
    return cache.free(DEVICE, kind) >= count


def make_host_room(cache: Cache, kind: int, count: int) -> bool:
    """Evicts until `count` host pages are free besides those kept for exchanges. Whether they
    are."""
    count += kept_free(cache, kind)
    evict_host(cache, kind, count - cache.free(HOST, kind))
    return cache.free(HOST, kind) >= count


def kept_free(cache: Cache, kind: int) -> int:
    """Host pages kept free for exchanges, less those that loads in flight will free."""
    if not cache.config.exchange_pages:
        return 0
    coming = sum(flight.gives_up.get(kind, 0) for flight in cache.flights.values())
    return max(0, cache.config.exchange_pages[kind] - coming)


# -- device


def evict_device(cache: Cache, kind: int, count: int) -> None:
    """Frees `count` device pages, now or after a copy to host; fewer if the rest is in use.

    Nothing warmer goes while something colder is being copied to host: not before a node that only
    copies hold, nor before the parent of a node that leaves with its copy.
    """
    if count <= 0:
        return
    goal = cache.free(DEVICE, kind) + count
    waiting = _held_by_copies(cache) if kind == FULL else []
    while (short := goal - cache.free(DEVICE, kind) - being_written_back(cache, kind)) > 0:
        node = victim(cache, DEVICE, kind)
        if node is None:
            return
        before = cache.hopeful()
        if kind != FULL:
            _evict_copy(cache, node, kind, short)
        elif node in before and waiting and cache.rank(node, FULL) > min(waiting):
            return
        else:
            above = evict_leaf(cache, node, kind, min(short, len(node.rows)))
            if above is not None and above is not cache.root and above not in _leaving(cache):
                waiting.append(cache.rank(above, FULL))
        delete_lost(cache, before)


def being_written_back(cache: Cache, kind: int) -> int:
    """Device pages whose eviction waits for a copy to host."""
    return sum(flight.frees.get(kind, 0) for flight in cache.flights.values())


def victim(cache: Cache, tier: Tier, kind: int) -> Node | None:
    held = cache.held()

    def can_go(node: Node) -> bool:
        if not node.has(tier, kind) or node.is_held(held, tier, kind):
            return False
        is_leaf = not any(child.has(tier, FULL) for child in node.children)
        return kind != FULL or (is_leaf and not node.any_held(held, tier))

    def order(node: Node) -> tuple[object, ...]:
        kinds = range(len(cache.kinds)) if kind == FULL else [kind]
        only = any(node.has(HOST, one) and not node.has(DEVICE, one) for one in kinds)
        needed = not cache.is_garbage(node, kind)
        return needed, tier == HOST and not only, cache.rank(node, kind), -node.end, node.made

    nodes = list(filter(can_go, cache.nodes()))
    node = min(nodes, key=order, default=None)
    if node is None or tier == HOST or not second_chance.is_used(cache):
        return node
    if cache.is_garbage(node, kind):
        return node
    return second_chance.victim(cache, kind, nodes)


def _leaving(cache: Cache) -> list[Node]:
    """The nodes that leave the device when their copy to host has ended."""
    return [
        node
        for flight in cache.flights.values()
        if flight.to == HOST and flight.frees.get(FULL)
        for node in copies.nodes_of(cache, flight)
    ]


def _held_by_copies(cache: Cache) -> list[tuple[int, ...]]:
    """Ranks of the nodes that could go if no copy to host were in flight, and of the parents of
    nodes that leave with their copy."""
    found = []
    backups = [flight for flight in cache.flights.values() if flight.to == HOST]
    others = [request.hold for request in cache.running]
    others += [flight.hold for flight in cache.flights.values() if flight.to != HOST]
    others += [pin.hold for pin in cache.pins.values()]
    leaving = _leaving(cache)
    above = [node.parent for node in leaving if node.parent not in (cache.root, *leaving)]
    found += [cache.rank(node, FULL) for node in above if node is not None]
    for node in cache.nodes():
        full = node.copies[DEVICE][FULL]
        if full is None or not any(full[0] in one.hold for one in backups if not one.frees):
            continue
        mine = {page for pages in node.copies[DEVICE] for page in pages or ()}
        if all(mine.isdisjoint(hold) for hold in others):
            found.append(cache.rank(node, FULL))
    return found


def _evict_copy(cache: Cache, node: Node, kind: int, short: int) -> None:
    """Evicts a window or a state. A leaf of which nothing is held goes with all kinds; elsewhere
    the node stays without it. With write_back it is copied first; what host cannot take is lost."""
    is_leaf = not any(child.has(DEVICE, FULL) for child in node.children)
    whole = is_leaf and not node.any_held(cache.held(), DEVICE)
    missing = _to_write_back(cache, node, kind, whole)
    if whole and (kind in missing or not missing):
        pages = len(node.rows)
        evict_leaf(cache, node, kind, min(short, pages) if cache.kinds[kind].per_page else pages)
    elif kind not in missing or not _write_back(cache, node, kind, [kind]):
        tombstone(cache, node, DEVICE, kind)


def evict_leaf(cache: Cache, node: Node, kind: int, pages: int) -> Node | None:
    """Evicts the last pages of a leaf, with all kinds. Returns the node above them if they are
    copied to host first."""
    missing = _to_write_back(cache, node, kind, whole=True)
    if missing:
        node = cut_tail(cache, node, pages)
        if _write_back(cache, node, kind, missing):
            return node.parent
    if node.has(HOST, FULL):
        leave_tier(cache, cut_tail(cache, node, pages), DEVICE)
    else:
        delete_tail(cache, node, DEVICE, pages)
    return None


def _to_write_back(cache: Cache, node: Node, kind: int, whole: bool) -> list[int]:
    """The kinds that are copied to host before this one leaves the device. None if the copy is
    garbage, or if host cannot hold one of them: without it the rest is worth nothing."""
    if not cache.writes.before_eviction or not cache.config.has_host:
        return []
    if cache.is_garbage(node, kind):
        return []
    for one in range(len(cache.kinds)) if whole else [kind]:
        refused = one in node.refused_by_host or not cache.capacity(HOST, one)
        if node.has(DEVICE, one) and not node.has(HOST, one) and refused:
            return []
    return copies.missing_on_host(cache, node)


def _write_back(cache: Cache, node: Node, kind: int, kinds: list[int]) -> bool:
    return copies.begin_backup(cache, [(node, kinds)], {kind: len(node.pages(DEVICE, kind))})


# -- host


def evict_host(cache: Cache, kind: int, count: int) -> None:
    """Frees `count` host pages; fewer if the rest is in use."""
    goal = cache.free(HOST, kind) + count
    while (short := goal - cache.free(HOST, kind)) > 0:
        node = victim(cache, HOST, kind)
        if node is None:
            return
        before = cache.hopeful()
        on_device, tail = node.has(DEVICE, FULL), min(short, len(node.rows))
        if kind == FULL and on_device:
            leave_tier(cache, cut_tail(cache, node, tail), HOST)
        elif kind == FULL:
            delete_tail(cache, node, HOST, tail)
        elif on_device or node.children or node.any_held(cache.held(), HOST):
            tombstone(cache, node, HOST, kind)
        else:
            delete_with_descendants(cache, node)
        delete_lost(cache, before)


def give_up_host(cache: Cache, nodes: list[Node]) -> None:
    """An exchange: frees the host copies that are on device too and in nobody's hold."""
    held = cache.held()
    for node in nodes:
        for kind in range(len(cache.kinds)):
            twice = node.has(DEVICE, kind) and node.has(HOST, kind)
            if twice and not node.is_held(held, HOST, kind):
                detach(cache, node, HOST, kind)


# -- what happens to one copy


def cut_tail(cache: Cache, node: Node, pages: int) -> Node:
    """The last pages of a node, as a node."""
    if pages < len(node.rows):
        split(cache, node, len(node.rows) - pages)
    return node


def leave_tier(cache: Cache, node: Node, tier: Tier) -> None:
    for kind in range(len(cache.kinds)):
        if node.has(tier, kind):
            free_copy(cache, node, tier, kind)


def tombstone(cache: Cache, node: Node, tier: Tier, kind: int) -> None:
    """Frees one kind of a node that stays. Later kinds go too where they are in nobody's hold, and
    are on the other tier as well or garbage now."""
    free_copy(cache, node, tier, kind)
    for later in range(kind + 1, len(cache.kinds)):
        if not node.has(tier, later) or node.is_held(cache.held(), tier, later):
            continue
        if node.has(1 - tier, later) or cache.is_garbage(node, later):
            free_copy(cache, node, tier, later)


def free_copy(cache: Cache, node: Node, tier: Tier, kind: int) -> None:
    demoted = tier == DEVICE and node.has(HOST, kind)
    leaves(cache, node, tier, kind)
    pages = detach(cache, node, tier, kind)
    name = cache.kinds[kind].name
    cache.say(Evicted(tier, name, as_pages(pages), node.last_use[kind], demoted))


def leaves(cache: Cache, node: Node, tier: Tier, kind: int, keep: int = 0) -> None:
    """A copy is evicted, behind its first `keep` pages."""
    if tier == DEVICE:
        marks.grow_older(cache, node, kind)
        if second_chance.is_used(cache):
            second_chance.goes(cache, node, kind, keep)


def detach(cache: Cache, node: Node, tier: Tier, kind: int) -> list[int]:
    pages, node.copies[tier][kind] = node.pages(tier, kind), None
    if kind == FULL:
        cache.tell_routers(tier, node, slice(None), stored=False)
    return pages


def delete_tail(cache: Cache, node: Node, tier: Tier, count: int) -> None:
    """Deletes the last pages of a node that is on this tier only. A leaf with full attention alone
    gets shorter; from any other node the tail is cut off as a node and deleted."""
    full, keep = node.pages(tier, FULL), len(node.rows) - count
    bare = not any(node.anywhere(kind) for kind in range(len(cache.kinds)) if kind != FULL)
    if not keep or node.children or not bare:
        delete_with_descendants(cache, cut_tail(cache, node, count))
        return
    cache.tell_routers(tier, node, slice(keep, None), stored=False)
    leaves(cache, node, tier, FULL, keep)
    forget_stored(cache, node, keep)
    node.rows, node.copies[tier][FULL] = node.rows[:keep], full[:keep]
    node.end -= count
    name = cache.kinds[FULL].name
    cache.say(Evicted(tier, name, as_pages(full[keep:]), node.last_use[FULL], False))


def delete_with_descendants(cache: Cache, node: Node) -> None:
    """A node whose last copy goes is deleted, and so are the nodes below it: without their prefix
    they cannot be matched."""
    for child in list(node.children):
        delete_with_descendants(cache, child)
    delete(cache, node)


def delete(cache: Cache, node: Node) -> None:
    above = node.parent
    assert above is not None
    for tier in (HOST, DEVICE):
        leave_tier(cache, node, tier)
    forget_stored(cache, node, 0)
    if node in cache.to_store:
        cache.to_store.remove(node)
    above.children.remove(node)
    cache.lost.append(above)


def forget_stored(cache: Cache, node: Node, keep: int) -> None:
    """All but the first pages of a node leave the tree. Should they come back, they are stored
    again."""
    if cache.believed:
        gone = set(cache.digests(node)[keep:])
        cache.believed = {one for one in cache.believed if one[1] not in gone}


def delete_lost(cache: Cache, before: set[Node]) -> None:
    """Deletes the leaves that lost their last live end with this eviction, and then their parents
    where the same is true of them. What is in a hold stays. before: `hopeful` before it."""
    note_lost(cache, before)
    while cache.lost:
        node = cache.lost.pop()
        if not cache.in_tree(node) or node.children or not cache.is_garbage(node, FULL):
            continue
        held = cache.held()
        if not node.any_held(held, DEVICE) and not node.any_held(held, HOST):
            delete(cache, node)


def note_lost(cache: Cache, before: set[Node]) -> None:
    """Notes the nodes that have no live end at or below them any more. before: `hopeful` before."""
    cache.lost += before.difference(cache.hopeful())
