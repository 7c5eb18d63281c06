"""Publishing: a fetch has ended, and what arrived becomes part of the tree, on host.

    1. a node that lacks a host copy adopts the pages that arrived, if these are all of its pages,
    2. what is not in the tree becomes new nodes, which nobody has used yet,
    3. the rest is free again.

Models with windows or states get the whole boundary that was fetched, or none. What comes is never
allowed to leave a gap that the write policy does not allow: then it ends above the gap.
"""

from . import copies, prefetching
from .cache import Cache
from .fetches import depths_in_tree, needed_at
from .insertion import ends_for, grow_down, thin_out_states
from .kinds import FULL
from .matching import end_nodes_at, path_to
from .records import HOST, Node, StorageTransfer
from .stores import believe

MOST_DISTRUSTED = 1024
Arrived = dict[tuple[int, int], int]  # the page of each kind and depth


def storage_brought(cache: Cache, fetch: StorageTransfer, pages: int) -> None:
    """The reply of a fetch: everything less than so many pages behind its first has arrived. The
    page that storage promised and did not deliver is distrusted."""
    published = 0 if fetch.flushed else _publish(cache, fetch, pages)
    short = pages < fetch.pages
    if short and not (fetch.abandoned or fetch.outdated):
        digest = fetch.key.page_digests()[fetch.first + pages]
        others = [data for data in cache.distrusted if data != digest]
        cache.distrusted = [*others, digest][-MOST_DISTRUSTED:]
    prefetching.is_over(cache, fetch, published, "short" if short else "")


def _publish(cache: Cache, fetch: StorageTransfer, pages: int) -> int:
    """Returns how many pages after the first the fetch has brought."""
    upto, hybrid = fetch.first + pages, len(cache.kinds) > 1
    arrived = {(part.kind, part.depth): part.page for part in fetch.parts if part.depth < upto}
    if not pages or (hybrid and not _is_complete(cache, fetch, pages, arrived)):
        return 0
    path, ends = path_to(cache, fetch.key, upto), ends_for(cache, [upto])
    end_nodes_at(cache, path, [fetch.first, *ends])
    reached = path[-1].end if path else 0
    for node in path:
        if node.end > fetch.first and not _adopt(cache, fetch, node, arrived):
            reached = node.start
            break
    else:
        if _may_go_on(cache, path, upto, arrived):
            _add_below(cache, fetch, path, [*ends, upto], arrived)
            reached = upto
    if reached == upto:
        thin_out_states(cache, path)
    return 0 if hybrid and reached < upto else max(0, reached - fetch.first)


def _is_complete(cache: Cache, fetch: StorageTransfer, pages: int, arrived: Arrived) -> bool:
    """Whether all that was fetched came, and every kind has what the boundary requires, in the tree
    or among what arrived."""
    end = fetch.key.pages
    lacking = [
        (kind, depth)
        for kind in range(len(cache.kinds))
        for depth in needed_at(cache, end, kind) - depths_in_tree(cache, fetch.key, end, kind)
    ]
    return pages == fetch.pages and arrived.keys() >= set(lacking)


def _adopt(cache: Cache, fetch: StorageTransfer, node: Node, arrived: Arrived) -> bool:
    """A node of the tree gets the host copies that it lacks. Returns whether nodes below it may get
    theirs too."""
    for kind in range(len(cache.kinds)):
        pages = _whole_copy(cache, node, kind, arrived)
        if node.has(HOST, kind):
            continue
        if pages and copies.may_be_added(cache, node, kind, but=[]):
            _add(cache, fetch, node, kind, pages)
        elif pages or (kind == FULL and not cache.writes.gaps):
            return False
    return True


def _may_go_on(cache: Cache, path: list[Node], upto: int, arrived: Arrived) -> bool:
    """Whether new nodes may come below the path: full attention arrived for all of them, and there
    is a host copy above them, where the write policy wants one."""
    depths = range(path[-1].end if path else 0, upto)
    gap = any(not node.has(HOST, FULL) for node in path[-1:] if depths)
    return all((FULL, depth) in arrived for depth in depths) and (cache.writes.gaps or not gap)


def _add_below(
    cache: Cache, fetch: StorageTransfer, path: list[Node], ends: list[int], arrived: Arrived
) -> None:
    owner = next(iter(prefetching.waiters(cache, fetch)), None)
    for node in grow_down(cache, path, fetch.key, ends, owner):
        node.last_use = [cache.tick for _ in cache.kinds]
        for kind in range(len(cache.kinds)):
            pages = _whole_copy(cache, node, kind, arrived)
            if pages:
                _add(cache, fetch, node, kind, pages)


def _whole_copy(cache: Cache, node: Node, kind: int, arrived: Arrived) -> list[int]:
    """What arrived of this kind, if it is the node's whole copy."""
    places = [(kind, depth) for depth in cache.positions(node, kind)]
    return [arrived[item] for item in places] if arrived.keys() >= set(places) else []


def _add(cache: Cache, fetch: StorageTransfer, node: Node, kind: int, pages: list[int]) -> None:
    copies.add(cache, node, HOST, kind, pages)
    if cache.attached and not fetch.outdated:
        believe(cache, node, kind)
