"""Publishing: a fetch has ended, and what arrived becomes part of the tree, on host.

    1. a node that lacks a host copy adopts the pages that arrived, if these are all of its pages,
    2. what is not in the tree becomes new nodes, which nobody has used yet,
    3. the rest is free again.

Models with windows or states get the whole boundary that was fetched, or none. What comes is never
allowed to leave a gap that the write policy does not allow: then it ends above the gap.
"""

from __future__ import annotations

from . import copies, marks, prefetching
from .cache import Cache
from .fetches import depths_in_tree, depths_required
from .insertion import cuts, limit_states
from .kinds import FULL
from .matching import cut, match, rows_of
from .records import HOST, Node, StorageFlight
from .stores import believe

MOST_DISTRUSTED = 1024
Arrived = dict[tuple[int, int], int]  # the page of each kind and depth


def after_fetch(cache: Cache, fetch: StorageFlight, pages: int) -> None:
    """The reply of a fetch: everything less than so many pages behind its first has arrived."""
    published = 0 if fetch.flushed else _publish(cache, fetch, pages)
    if pages < fetch.pages and not (fetch.abandoned or fetch.outdated):
        _distrust(cache, fetch.key.page_digests()[fetch.first + pages])
    prefetching.end(cache, fetch, published, "short" if pages < fetch.pages else "")


def _distrust(cache: Cache, digest: bytes) -> None:
    """Storage promised this page and did not deliver it."""
    others = [one for one in cache.distrusted if one != digest]
    cache.distrusted = [*others, digest][-MOST_DISTRUSTED:]


def _publish(cache: Cache, fetch: StorageFlight, pages: int) -> int:
    """Returns how many pages after the first the fetch has brought."""
    hybrid = len(cache.kinds) > 1
    upto = fetch.first + (0 if hybrid and pages < fetch.pages else pages)
    arrived = {(part.kind, part.depth): part.page for part in fetch.parts if part.depth < upto}
    if upto == fetch.first or (hybrid and not _makes_boundary(cache, fetch, upto, arrived)):
        return 0
    path = match(cache, fetch.key, upto)
    ends = [depth for depth in cuts(cache, [upto]) if depth <= upto]
    for depth in (fetch.first, *ends):
        cut(cache, path, depth)
    for node in path:
        if node.end > fetch.first and not _adopt(cache, fetch, node, arrived):
            return 0 if hybrid else max(0, node.start - fetch.first)
    known = path[-1].end if path else 0
    if known < upto and not _append(cache, fetch, path, [*ends, upto], arrived):
        return 0 if hybrid else max(0, known - fetch.first)
    limit_states(cache, path)
    return upto - fetch.first


def _makes_boundary(cache: Cache, fetch: StorageFlight, end: int, arrived: Arrived) -> bool:
    """Whether every kind has what the boundary requires, in the tree or among what arrived."""
    for kind in range(len(cache.kinds)):
        have = depths_in_tree(cache, fetch.key, end, kind)
        for depth in depths_required(cache, end, kind):
            if depth not in have and (kind, depth) not in arrived:
                return False
    return True


def _adopt(cache: Cache, fetch: StorageFlight, node: Node, arrived: Arrived) -> bool:
    """A node of the tree gets the host copies that it lacks. Returns whether nodes below it may get
    theirs too."""
    for kind in range(len(cache.kinds)):
        if node.has(HOST, kind):
            continue
        pages = _pages_for(cache, node, kind, arrived)
        if pages and copies.may_have(cache, node, kind):
            _attach(cache, fetch, node, kind, pages)
        elif pages or (kind == FULL and not cache.writes.before_eviction):
            return False
    return True


def _append(
    cache: Cache, fetch: StorageFlight, path: list[Node], ends: list[int], arrived: Arrived
) -> bool:
    """Adds new nodes below the path. Whether it could: full attention arrived for all of them, and
    there is a host copy above them, where the write policy wants one."""
    known, rows = path[-1].end if path else 0, rows_of(fetch.key, ends[-1])
    gap = path and not path[-1].has(HOST, FULL) and not cache.writes.before_eviction
    if gap or any((FULL, depth) not in arrived for depth in range(known, ends[-1])):
        return False
    owner = next(iter(prefetching.waiters(cache, fetch)), None)
    for end in ends:
        start = path[-1].end if path else 0
        if end <= start:
            continue
        above = path[-1] if path else cache.root
        node = Node(above, fetch.key.namespace, rows[start:end], len(cache.kinds))
        above.children.append(node)
        marks.inserted(cache, node)
        node.last_use = [cache.tick] * len(cache.kinds)
        node.priority = owner.priority if owner is not None else 0
        for kind in range(len(cache.kinds)):
            pages = _pages_for(cache, node, kind, arrived)
            if pages:
                _attach(cache, fetch, node, kind, pages)
        path.append(node)
    return True


def _pages_for(cache: Cache, node: Node, kind: int, arrived: Arrived) -> list[int]:
    """What arrived of this kind, if it is the node's whole copy."""
    depths = cache.positions(node, kind)
    found = [arrived[kind, depth] for depth in depths if (kind, depth) in arrived]
    return found if len(found) == len(depths) else []


def _attach(cache: Cache, fetch: StorageFlight, node: Node, kind: int, pages: list[int]) -> None:
    copies.attach(cache, node, HOST, kind, pages)
    if cache.attached and not fetch.outdated:
        believe(cache, node, kind)
