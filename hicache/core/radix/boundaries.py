"""Live boundaries: where a prefix can be reused, and which copies a live boundary requires.

    live boundary   a node's end at which every component is valid, each on device or host
    live_distance   pages from the node's end down to the nearest live boundary at or below it
    garbage         a copy that no live boundary at or below it requires, because all are too far:
                    live_distance >= window_pages

These values are updated when a component appears at a node or leaves its last tier, and when a node
is split. If the backbone is the only component, every node's end is live, because every node has
the backbone. Then nothing is computed here.

    live_distance(n) = 0 if n's end is live, else the least span(child) + live_distance(child);
              FAR if that is at least the widest window, NONE without a live boundary below

`child_distances` counts the children of a node by their distance, and `children_in_reach` lists the
children that end within the widest window. So the cost of a change depends on the nodes that it
concerns, not on how many children each of them has.
"""

from __future__ import annotations

from ..errors import CoreBug
from ..state import State
from ..types import BACKBONE
from .lru import offer
from .node import FAR, NONE, NOTHING, Node


def changed(state: State, node: Node, index: int) -> None:
    """The component appeared at the node or left its last tier: update which of the ends at and
    below the node are live boundaries."""
    if state.every_end_is_live or index == BACKBONE:
        return
    window = state.components[index].window_pages
    came = is_there(node, index)
    found = [(node, 0)]
    for above, distance in found:
        if distance + 1 >= window or not (came or distance + _nearest_below(above) < window):
            continue
        for child in above.children_in_reach.values():
            depth = distance + child.end_page - above.end_page
            if depth < window and (came or depth + child.live_distance < window):
                found.append((child, depth))
    for below, _ in reversed(found):
        live = came and is_live(state, below)
        if live != (below.live_distance == 0):
            _set(state, below, 0 if live else _nearest_below(below))


def is_there(node: Node, index: int) -> bool:
    """Whether the component is at the node, on any tier."""
    return node.pages[0][index] is not None or node.pages[1][index] is not None


def is_live(state: State, node: Node) -> bool:
    """Whether every component is valid at the node's end. Reads the path above the node."""
    for index, component in enumerate(state.components):
        above = node
        while (
            node.end_page - above.end_page < component.window_pages
            and above.parent is not None
            and index != BACKBONE
        ):
            if not is_there(above, index):
                return False
            above = above.parent
    return True


def note_span(state: State, node: Node) -> None:
    """The node has a new parent or a new length: update its parent's `children_in_reach`."""
    parent = node.parent
    if parent is not None and node.end_page - parent.end_page < state.widest_window_pages:
        if parent.children_in_reach is NOTHING:
            parent.children_in_reach = {}
        parent.children_in_reach[node.id] = node


def begin_split(state: State, node: Node) -> None:
    """The node will be split: remove it from what its parent counts."""
    if not state.every_end_is_live and node.parent is not None:
        _count(state, node, node.live_distance, -1)
        node.parent.children_in_reach.pop(node.id, None)


def end_split(state: State, upper: Node, lower: Node) -> None:
    """The node was split and its pages divided: count both halves."""
    if state.every_end_is_live:
        upper.live_distance = 0
        return
    _count(state, lower, lower.live_distance, 1)
    note_span(state, lower)
    upper.live_distance = 0 if is_live(state, upper) else _nearest_below(upper)
    _count(state, upper, upper.live_distance, 1)
    for tier in (0, 1):
        for index in range(1, len(state.components)):
            if upper.pages[tier][index] is not None:
                offer(state.queues, state.eviction, upper, tier, index)
    _refresh(state, upper.parent)


def _set(state: State, node: Node, near: int) -> None:
    _count(state, node, node.live_distance, -1)
    if node.parent is None or near < 0:
        raise CoreBug(f"{node} is to be {near} pages from a live boundary")
    before, node.live_distance = node.live_distance, near
    _count(state, node, near, 1)
    state.touched[node.id] = node
    if near == NONE:
        state.dead.append(node)
    for index, component in enumerate(state.components):
        was = before >= component.window_pages
        if was != (near >= component.window_pages):
            # a node without an entry is no candidate; it is offered when its lock ends
            for queue in state.queues[index]:
                if node.queued & queue.bits[was]:
                    offer(state.queues, state.eviction, node, queue.tier, index)
    _refresh(state, node.parent)


def _refresh(state: State, node: Node | None) -> None:
    """The distance of a child changed: update the node and the nodes above it."""
    if node is not None and node.parent is not None and node.live_distance:
        near = _nearest_below(node)
        if near != node.live_distance:
            _set(state, node, near)


def _nearest_below(node: Node) -> int:
    return min(node.child_distances, default=NONE)


def _count(state: State, node: Node, near: int, by: int) -> None:
    """Add `by` to the number of children that the parent counts at this child's distance."""
    parent = node.parent
    if near == NONE or parent is None:
        return
    distance = near + node.end_page - parent.end_page
    if distance >= state.widest_window_pages:
        distance = FAR
    left = parent.child_distances.get(distance, 0) + by
    if left < 0:
        raise CoreBug(f"{parent} counts {left} children at a distance of {distance} pages")
    if left:
        if parent.child_distances is NOTHING:
            parent.child_distances = {}
        parent.child_distances[distance] = left
    else:
        del parent.child_distances[distance]
