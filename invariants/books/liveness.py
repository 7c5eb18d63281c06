"""Definitions of live boundaries and garbage, computed by walking the tree.

Lives here: the definitions, evaluated per node on the records that observers may read. Keeps
nothing between operations.

    live      the end of a node at which every component has, on device or on host, everything that
              the boundary requires
    near      pages from a node's end down to the nearest live boundary at or below it
    garbage   a copy that no live boundary requires: near >= need
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.radix.node import FAR, NONE, Node

from .kinds import EVERYTHING, Kind


def is_live(node: Node, kinds: Sequence[Kind]) -> bool:
    """Whether a request could reuse everything up to the node's end, with loads."""
    for kind in kinds[1:]:
        step = node
        while step.parent is not None and node.end_page - step.end_page < kind.need:
            if step.pages[0][kind.at] is None and step.pages[1][kind.at] is None:
                return False
            step = step.parent
    return True


def widest(kinds: Sequence[Kind]) -> int:
    """Maximum distance in pages from a boundary up to the end of a required node; -1 if every
    component requires all positions.
    """
    return max((kind.need - 1 for kind in kinds if kind.need < EVERYTHING), default=-1)


def near_of(node: Node, kinds: Sequence[Kind], most: int) -> int:
    """Computes the node's `near` from its children's.

    Returns FAR for a distance above `most`, which is the result of `widest`, and NONE without a
    live boundary below.
    """
    if node.parent is None:
        return node.live_distance
    if is_live(node, kinds):
        return 0
    least = NONE
    for child in node.children.values():
        if child.live_distance != NONE:
            distance = child.live_distance + child.end_page - node.end_page
            least = min(least, distance if distance <= most else FAR)
    return least
