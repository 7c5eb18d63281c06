"""Distances to live boundaries, kept from the books' own record of pages.

Lives here: which ends are live boundaries, and how far below each node the nearest one is. The core
keeps the same figures; they are not read here, and NEAR compares them with these.

    live      the end of a node at which every component has, on device or on host, everything that
              the boundary requires
    distance  pages from a node's end down to the nearest live boundary at or below it: FAR above
              `most`, the largest distance at which a copy is required, and NONE without a boundary
    garbage   a copy that no live boundary requires: distance >= need
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from hicache.core.node import FAR, NONE

from .kinds import EVERYTHING, Kind
from .mirror import NodeMirror


def widest(kinds: Sequence[Kind]) -> int:
    """Maximum distance in pages from a boundary up to the end of a required node; -1 if every
    component requires all positions.
    """
    return max((kind.need - 1 for kind in kinds if kind.need < EVERYTHING), default=-1)


def is_live(mirror: NodeMirror, kinds: Sequence[Kind]) -> bool:
    """Whether a request could reuse everything up to the node's end, with loads."""
    width = len(kinds)
    for kind in kinds[1:]:
        step = mirror
        while step.parent is not None and mirror.end_page - step.end_page < kind.need:
            if step.pages[kind.at] is None and step.pages[width + kind.at] is None:
                return False
            step = step.parent
    return True


def presence(mirror: NodeMirror, width: int) -> int:
    """The components other than the backbone that the node has on a tier, as bits."""
    bits = 0
    for index in range(1, width):
        if mirror.pages[index] is not None or mirror.pages[width + index] is not None:
            bits |= 1 << index
    return bits


def recounted(mirrors: Sequence[NodeMirror], kinds: Sequence[Kind], most: int) -> None:
    """Computes the distances of all nodes. mirrors: parents before children, with the root."""
    for mirror in mirrors:
        mirror.live_distance = NONE
    for mirror in reversed(mirrors):
        if mirror.parent is None:
            continue
        if most < 0 or is_live(mirror, kinds):
            mirror.live_distance = 0
        above = mirror.parent
        if above.parent is not None:
            above.live_distance = min(above.live_distance, _from_above(mirror, above, most))


def update(
    by_id: Mapping[int, NodeMirror],
    changed: Sequence[NodeMirror],
    above: Iterable[NodeMirror],
    kinds: Sequence[Kind],
    most: int,
) -> list[NodeMirror]:
    """Updates the distances after an operation. Returns the nodes with another distance.

    changed: nodes that are new, or that gained or lost a component. above: nodes that gained or
    lost a child.
    """
    asked: dict[int, NodeMirror] = {}
    for mirror in sorted(changed, key=_depth):
        asked[mirror.id] = mirror
        asked.update((one.id, one) for one in _within(mirror, by_id, most, asked))
    waiting = {(-mirror.end_page, mirror.id) for mirror in asked.values()}
    waiting.update((-one.end_page, one.id) for one in above if _counts(one, by_id))
    heap = list(waiting)
    turned: list[NodeMirror] = []
    heapify(heap)
    while heap:  # a child is deeper than its parent, so it comes first
        number = heappop(heap)[1]
        mirror = by_id[number]
        before = mirror.live_distance
        live = is_live(mirror, kinds) if number in asked else not before
        mirror.live_distance = 0 if live else _below(mirror, by_id, most)
        if mirror.live_distance == before:
            continue
        turned.append(mirror)
        parent = mirror.parent
        if parent is not None and _counts(parent, by_id):
            place = (-parent.end_page, parent.id)
            if place not in waiting:
                waiting.add(place)
                heappush(heap, place)
    return turned


def _depth(mirror: NodeMirror) -> int:
    return -mirror.end_page


def _counts(mirror: NodeMirror, by_id: Mapping[int, NodeMirror]) -> bool:
    """Whether the node's distance depends on its children's: it is in the tree, below the root, and
    its own end is no live boundary."""
    inside = mirror.parent is not None and by_id.get(mirror.id) is mirror
    return inside and mirror.live_distance > 0


def _children(mirror: NodeMirror, by_id: Mapping[int, NodeMirror]) -> Iterator[NodeMirror]:
    for child in mirror.node.children.values() if mirror.node is not None else ():
        known = by_id.get(child.id)
        if known is not None and known.parent is mirror:
            yield known


def _within(
    mirror: NodeMirror,
    by_id: Mapping[int, NodeMirror],
    most: int,
    known: Mapping[int, NodeMirror],
) -> list[NodeMirror]:
    """The nodes below that end within the largest window, except below a node that is known."""
    found = [mirror]
    for step in found:
        found += [
            one
            for one in _children(step, by_id)
            if one.end_page - mirror.end_page <= most and one.id not in known
        ]
    return found


def _below(mirror: NodeMirror, by_id: Mapping[int, NodeMirror], most: int) -> int:
    found = (_from_above(child, mirror, most) for child in _children(mirror, by_id))
    return min(found, default=NONE)


def _from_above(child: NodeMirror, parent: NodeMirror, most: int) -> int:
    """The distance from the parent's end to the nearest live boundary at or below the child."""
    if child.live_distance == NONE:
        return NONE
    distance = child.live_distance + child.end_page - parent.end_page
    return distance if distance <= most else FAR
