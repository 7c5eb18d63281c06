"""Live boundaries: where a prefix could be reused, and which copies serve one.

    live boundary   a node's end at which every component is valid, each on device or host
    live_distance   pages from the node's end down to the nearest live boundary at or below it
    garbage         a copy that no live boundary at or below it requires, because all are too far:
                    live_distance >= window_pages

Kept up to date when a component appears at a node or leaves it for good, and when nodes split. The
backbone is there on every node, so with that alone every end is live and nothing here is done.

    live_distance(n) = 0 if n's end is live, else the least span(child) + live_distance(child),
              FAR from the widest window on, NONE without a live boundary below

`child_distances` counts the children by what they contribute, and `children_in_reach` names those
that end within the widest window of its end, so a change costs the nodes that it concerns, not the
children of each.
"""

from __future__ import annotations

from ..errors import CoreBug
from ..state import State
from ..types import BACKBONE
from .lru import offer
from .node import FAR, NONE, Node


def changed(state: State, node: Node, index: int) -> None:
    """The component appeared at the node, or left its last tier: boundaries below live or die."""
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
    """Whether every component is valid at the node's end, by looking up the path."""
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
    """The node hangs where it does, or is as long as it is, since now."""
    parent = node.parent
    if parent is not None and node.end_page - parent.end_page < state.widest_window_pages:
        parent.children_in_reach[node.id] = node


def begin_split(state: State, node: Node) -> None:
    """The node is about to be cut: its contribution to its parent goes."""
    if not state.every_end_is_live and node.parent is not None:
        _count(state, node, node.live_distance, -1)
        node.parent.children_in_reach.pop(node.id, None)


def end_split(state: State, upper: Node, lower: Node) -> None:
    """It was cut, and the pages went where they belong."""
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
            # a candidate has an entry where it belonged; what has none is offered with its lock
            for queue in state.queues[index]:
                if node.queued & queue.bits[was]:
                    offer(state.queues, state.eviction, node, queue.tier, index)
    _refresh(state, node.parent)


def _refresh(state: State, node: Node | None) -> None:
    """A child's contribution changed."""
    if node is not None and node.parent is not None and node.live_distance:
        near = _nearest_below(node)
        if near != node.live_distance:
            _set(state, node, near)


def _nearest_below(node: Node) -> int:
    return min(node.child_distances, default=NONE)


def _count(state: State, node: Node, near: int, by: int) -> None:
    """Add to, or take from, what the parent counts of this child."""
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
        parent.child_distances[distance] = left
    else:
        del parent.child_distances[distance]
