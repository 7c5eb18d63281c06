"""Distances to live boundaries, kept from the shadow state's own record of pages.

Lives here: which ends are live boundaries, and how far below each node the nearest one is. The core
keeps the same figures; they are not read here, and NEAR compares them with these.

    live      the end of a node at which every component has, on device or on host, everything that
              the boundary requires
    distance  pages from a node's end down to the nearest live boundary at or below it: FAR above
              `most`, the largest distance at which a copy is required, and NONE without a boundary
    unreachable: a copy that no live boundary requires: distance >= need
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from hicache.core.node import FAR, NONE

from .kinds import EVERYTHING, Kind
from .record import NodeRecord


def widest(kinds: Sequence[Kind]) -> int:
    """Maximum distance in pages from a boundary up to the end of a required node; -1 if every
    component requires all positions.
    """
    return max((kind.need - 1 for kind in kinds if kind.need < EVERYTHING), default=-1)


def is_live(record: NodeRecord, kinds: Sequence[Kind], host: int, end: int) -> bool:
    """Whether these components have all that a boundary at this end, in the node, requires: on
    device or, where `host` is how many slots the host's are behind those, on either tier."""
    for kind in kinds:
        step = record
        if end < record.end_page and not kind.positional:
            return False
        while step.parent is not None and end - step.end_page < kind.need:
            if step.pages[kind.at] is None and step.pages[host + kind.at] is None:
                return False
            step = step.parent
    return True


def presence(record: NodeRecord, width: int) -> int:
    """The components other than the backbone that the node has on a tier, as bits."""
    bits = 0
    for index in range(1, width):
        if record.pages[index] is not None or record.pages[width + index] is not None:
            bits |= 1 << index
    return bits


def recounted(records: Sequence[NodeRecord], kinds: Sequence[Kind], most: int) -> None:
    """Computes the distances of all nodes. records: parents before children, with the root."""
    for record in records:
        record.live_distance = NONE
    for record in reversed(records):
        if record.parent is None:
            continue
        if most < 0 or is_live(record, kinds[1:], len(kinds), record.end_page):
            record.live_distance = 0
        above = record.parent
        if above.parent is not None:
            above.live_distance = min(above.live_distance, _from_above(record, above, most))


def update(
    by_id: Mapping[int, NodeRecord],
    changed: Sequence[NodeRecord],
    above: Iterable[NodeRecord],
    kinds: Sequence[Kind],
    most: int,
) -> list[NodeRecord]:
    """Updates the distances after an operation. Returns the nodes with another distance.

    changed: nodes that are new, or that gained or lost a component. above: nodes that gained or
    lost a child.
    """
    requested: dict[int, NodeRecord] = {}
    for record in sorted(changed, key=_depth):
        requested[record.id] = record
        requested.update((item.id, item) for item in _within(record, by_id, most, requested))
    waiting = {(-record.end_page, record.id) for record in requested.values()}
    waiting.update((-record.end_page, record.id) for record in above if _counts(record, by_id))
    heap = list(waiting)
    turned: list[NodeRecord] = []
    heapify(heap)
    while heap:  # a child is deeper than its parent, so it comes first
        number = heappop(heap)[1]
        record = by_id[number]
        before = record.live_distance
        live = (
            is_live(record, kinds[1:], len(kinds), record.end_page)
            if number in requested
            else not before
        )
        record.live_distance = 0 if live else _below(record, by_id, most)
        if record.live_distance == before:
            continue
        turned.append(record)
        parent = record.parent
        if parent is not None and _counts(parent, by_id):
            place = (-parent.end_page, parent.id)
            if place not in waiting:
                waiting.add(place)
                heappush(heap, place)
    return turned


def _depth(record: NodeRecord) -> int:
    return -record.end_page


def _counts(record: NodeRecord, by_id: Mapping[int, NodeRecord]) -> bool:
    """Whether the node's distance depends on its children's: it is in the tree, below the root, and
    its own end is no live boundary."""
    inside = record.parent is not None and by_id.get(record.id) is record
    return inside and record.live_distance > 0


def _children(record: NodeRecord, by_id: Mapping[int, NodeRecord]) -> Iterator[NodeRecord]:
    for child in record.node.children.values() if record.node is not None else ():
        known = by_id.get(child.id)
        if known is not None and known.parent is record:
            yield known


def _within(
    record: NodeRecord, by_id: Mapping[int, NodeRecord], most: int, known: Mapping[int, NodeRecord]
) -> list[NodeRecord]:
    """The nodes below that end within the largest window, except below a node that is known."""
    records = [record]
    for step in records:
        records += [
            child
            for child in _children(step, by_id)
            if child.end_page - record.end_page <= most and child.id not in known
        ]
    return records


def _below(record: NodeRecord, by_id: Mapping[int, NodeRecord], most: int) -> int:
    result = (_from_above(child, record, most) for child in _children(record, by_id))
    return min(result, default=NONE)


def _from_above(child: NodeRecord, parent: NodeRecord, most: int) -> int:
    """The distance from the parent's end to the nearest live boundary at or below the child."""
    if child.live_distance == NONE:
        return NONE
    distance = child.live_distance + child.end_page - parent.end_page
    return distance if distance <= most else FAR
