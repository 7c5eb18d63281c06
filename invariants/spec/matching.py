"""How much of a prompt is known, and how much of that can be reused.

A prefix can be reused up to a *boundary*: the end of a node at which every kind of attention has
what it requires. The *device* boundary is the deepest where all of it is on device, the *best*
boundary the deepest where each part is on device or host.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import NamedTuple

from hicache.core.actions import Matched
from hicache.core.types import Key

from .cache import Cache
from .records import BOTH, DEVICE, Node, Request


class Known(NamedTuple):
    """What the tree has of a prompt: `depth` pages, in these nodes from the top down. The last node
    may go on behind them."""

    nodes: list[Node]
    depth: int


class Reach(NamedTuple):
    """Page depths of the device boundary, of the best one, and of each kind alone."""

    device: int
    best: int
    alone: tuple[int, ...]


def known_of(cache: Cache, key: Key, limit: int) -> Known:
    """Follows the first `limit` pages of the key down the tree as far as they are equal."""
    rows, nodes, depth, children = rows_of(key, limit), list[Node](), 0, cache.root.children
    while depth < len(rows):
        begin = key.namespace, rows[depth]
        same = [child for child in children if (child.namespace, child.rows[0]) == begin]
        if not same:
            break
        (node,) = same
        nodes.append(node)
        depth += sum(takewhile(bool, map(eq, node.rows, rows[depth:])))
        if depth < node.end:
            break
        children = node.children
    return Known(nodes, depth)


def reach(cache: Cache, known: Known) -> Reach:
    """How deep a request could start that has this prompt."""
    kinds = range(len(cache.kinds))
    alone = tuple(deepest(cache, known, BOTH, [kind]) for kind in kinds)
    best = deepest(cache, known, BOTH, kinds) if len(kinds) > 1 else alone[0]
    return Reach(deepest(cache, known, (DEVICE,), kinds), best, alone)


def deepest(cache: Cache, known: Known, tiers: Sequence[int], kinds: Sequence[int]) -> int:
    """The deepest end at which each of these kinds has on one of these tiers what it requires. A
    state belongs to the end of its node alone."""

    def is_boundary(end: int) -> bool:
        for kind in kinds:
            item = cache.kinds[kind]
            for node in known.nodes:
                usable = item.per_page or node.end <= end
                there = usable and any(node.copies[tier][kind] is not None for tier in tiers)
                if not there and node.start < end and end - node.end < item.window:
                    return False
        return True

    ends = [0, *(min(node.end, known.depth) for node in known.nodes)]
    return next(filter(is_boundary, reversed(ends)))


def tell_what_is_cached(cache: Cache, request: Request) -> None:
    """Says what an admission would find now, and changes nothing."""
    result = reach(cache, known_of(cache, request.key, request.match_pages))
    pages = result.best - result.device
    cache.say(Matched(request.number, result.device, pages, result.alone))


def requires(cache: Cache, path: Sequence[Node], kind: int) -> list[Node]:
    """The nodes of which the end of the path requires this kind."""
    return [node for node in path if path[-1].end - node.end < cache.kinds[kind].window]


# -- nodes end where something is reused in part


def path_to(cache: Cache, key: Key, limit: int) -> list[Node]:
    """The nodes that have the longest known prefix of at most `limit` pages, and no page more."""
    known = known_of(cache, key, limit)
    end_nodes_at(cache, known.nodes, [known.depth])
    return [node for node in known.nodes if node.end <= known.depth]


def divide(cache: Cache, node: Node, at: int) -> None:
    """Divides a node after `at` of its pages. The lower half stays the node that it was. Each page
    stays what and whose it was; a state stays with the lower half, whose end it belongs to."""
    assert node.parent is not None
    siblings = node.parent.children
    upper = _part(cache, node, node.parent, slice(at))
    upper.children, siblings[siblings.index(node)] = [node], upper
    node.parent, node.rows = upper, node.rows[at:]
    if node in cache.to_store:
        cache.to_store.insert(cache.to_store.index(node), upper)


def tail(cache: Cache, node: Node, at: int, shorten: bool) -> Node:
    """What is behind the first `at` pages of a node, as a node. shorten: the upper half stays the
    node that it was."""
    if at and shorten:
        lower = _part(cache, node, node, slice(at, None))
        node.children, node.rows, node.end = [lower], node.rows[:at], node.start + at
        lower.end = node.end + len(lower.rows)
        return lower
    if at:
        divide(cache, node, at)
    return node


def _part(cache: Cache, node: Node, above: Node, rows: slice) -> Node:
    """A new node that takes over these pages of a node, and was used as it was."""
    assert node.rows[rows] not in ([], node.rows)
    upper = cache.new_node(above, node.namespace, node.rows[rows])
    upper.last_use, upper.inserted = list(node.last_use), node.inserted
    upper.hits, upper.priority, upper.failures = node.hits, node.priority, node.failures
    upper.refused_by_host, node.digests = set(node.refused_by_host), []
    for tier, its in enumerate(node.copies):
        for kind, pages in enumerate(its):
            if pages is not None and cache.kinds[kind].per_page:
                cache.put(upper, tier, kind, pages[rows])
                cache.put(node, tier, kind, [page for page in pages if page not in pages[rows]])
    return upper


def end_nodes_at(cache: Cache, path: list[Node], depths: Sequence[int]) -> None:
    """Makes a node of the path end at each of these page depths, as far as the path goes."""
    for depth in depths:
        for at, node in enumerate(path):
            if node.start < depth < node.end:
                divide(cache, node, depth - node.start)
                assert node.parent is not None
                path.insert(at, node.parent)
                break


def end_nodes_before_windows(cache: Cache, path: list[Node]) -> None:
    """Makes the windows before the path's end begin at the start of a node."""
    end = path[-1].end if path else 0
    end_nodes_at(cache, path, [end - cache.kinds[kind].window for kind in cache.windows])


@lru_cache(256)
def rows_of(key: Key, limit: int) -> list[bytes]:
    """The first `limit` pages of the key, each as its row of bytes."""
    starts = range(0, len(key.raw), key.stride)[:limit]
    return [key.raw[start : start + key.stride] for start in starts]
