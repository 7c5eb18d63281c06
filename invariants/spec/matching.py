"""How much of a prompt is known, and how much of that can be reused.

A prefix can be reused up to a *boundary*: the end of a node at which every kind of attention has
what it requires. The *device* boundary is the deepest where all of it is on device, the *best*
boundary the deepest where each part is on device or host.
"""

from __future__ import annotations

from typing import NamedTuple

from hicache.core.actions import Matched
from hicache.core.types import Key

from . import marks
from .cache import Cache
from .records import DEVICE, HOST, Node, Request


class Boundaries(NamedTuple):
    """Positions on a path: how many leading nodes belong to each. alone: for each kind alone, on
    either tier. ends: the page depth of each position."""

    device: int
    best: int
    alone: tuple[int, ...]
    ends: list[int]


def report_match(cache: Cache, request: Request) -> None:
    """Says what an admission would find now, and changes nothing."""
    on_device, best, alone = reach(cache, request)
    cache.say(Matched(request.number, on_device, best - on_device, alone))


def reach(cache: Cache, request: Request) -> tuple[int, int, tuple[int, ...]]:
    """The page depths of the device boundary, of the best one, and of each kind alone."""
    path, partly, pages = walk(cache, request.key, request.match_pages)
    found = boundaries(cache, [*path, partly] if partly else path, pages)
    alone = tuple(found.ends[at] for at in found.alone)
    return found.ends[found.device], found.ends[found.best], alone


def walk(cache: Cache, key: Key, limit: int) -> tuple[list[Node], Node | None, int]:
    """Follows the first `limit` pages of the key. Returns the nodes that match as a whole, then the
    node that matches in part, and how many of its pages do."""
    path: list[Node] = []
    rows, node = rows_of(key, limit), cache.root
    while rows:
        for child in node.children:
            if child.namespace == key.namespace and child.rows[0] == rows[0]:
                break
        else:
            break
        same = 0
        for one, other in zip(child.rows, rows, strict=False):
            if one != other:
                break
            same += 1
        if same < len(child.rows):
            return path, child, same
        path.append(child)
        node, rows = child, rows[same:]
    return path, None, 0


def match(cache: Cache, key: Key, limit: int) -> list[Node]:
    """The path of the longest known prefix of at most `limit` pages. A node that matches only in
    part is split there."""
    path, partly, pages = walk(cache, key, limit)
    return [*path, split(cache, partly, pages)] if partly else path


def boundaries(cache: Cache, path: list[Node], part: int = 0) -> Boundaries:
    """Where the path can be reused. part: if not 0, only so many pages of the last node match."""
    ends = [0, *(node.end for node in path)]
    if part:
        ends[-1] = ends[-2] + part

    def has(at: int, kind: int, *tiers: int) -> bool:
        if part and at == len(path) and not cache.kinds[kind].per_page:
            return False  # a state is at the end of its node, which the match does not reach
        return all(
            any(node.has(tier, kind) for tier in tiers)
            for node, end in zip(path[:at], ends[1:], strict=False)
            if ends[at] - end < cache.kinds[kind].window
        )

    kinds, all_positions = range(len(cache.kinds)), range(len(ends))
    alone = tuple(max(at for at in all_positions if has(at, kind, DEVICE, HOST)) for kind in kinds)
    best = max(at for at in all_positions if all(has(at, kind, DEVICE, HOST) for kind in kinds))
    device = max(at for at in range(best + 1) if all(has(at, kind, DEVICE) for kind in kinds))
    return Boundaries(device, best, alone, ends)


def required(cache: Cache, path: list[Node], kind: int) -> list[Node]:
    """The nodes of which the end of the path requires this kind."""
    return [node for node in path if path[-1].end - node.end < cache.kinds[kind].window]


def split(cache: Cache, node: Node, at: int) -> Node:
    """Divides a node after `at` of its pages. Returns the new upper half. Each page stays what and
    whose it was; a state stays with the lower half, whose end it belongs to."""
    above = node.parent
    assert above is not None
    assert 0 < at < len(node.rows)
    upper = Node(above, node.namespace, node.rows[:at], len(cache.kinds))
    above.children[above.children.index(node)] = upper
    upper.children = [node]
    node.parent, node.rows = upper, node.rows[at:]
    upper.last_use, upper.inserted = list(node.last_use), node.inserted
    upper.hits, upper.priority = node.hits, node.priority
    upper.refused_by_host = set(node.refused_by_host)
    upper.failures = node.failures
    marks.split(cache, upper, node)
    if node in cache.to_store:
        cache.to_store.insert(cache.to_store.index(node), upper)
    for upper_copies, copies in zip(upper.copies, node.copies, strict=True):
        for index, (kind, pages) in enumerate(zip(cache.kinds, copies, strict=True)):
            if pages is not None and kind.per_page:
                upper_copies[index], copies[index] = pages[:at], pages[at:]
    return upper


def cut(cache: Cache, path: list[Node], depth: int) -> None:
    """Makes a node of the path end at this page depth, if the path goes that far."""
    for at, node in enumerate(path):
        if node.start < depth < node.end:
            path.insert(at, split(cache, node, depth - node.start))
            return


def cut_windows(cache: Cache, path: list[Node]) -> None:
    """Makes the windows before the path's end begin at the start of a node."""
    for kind in cache.windows:
        if path:
            cut(cache, path, path[-1].end - cache.kinds[kind].window)


def rows_of(key: Key, limit: int) -> list[bytes]:
    """The first `limit` pages of the key, each as its row of bytes."""
    starts = range(0, len(key.raw), key.stride)[:limit]
    return [key.raw[start : start + key.stride] for start in starts]
