"""Finding the node from which a new one was split.

Lives here: one search over the tree below the new node, and over the nodes that an operation
removed. Does not file anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hicache.core.radix.node import Node

from .mirror import NodeMirror


def lower_half(
    mirror: NodeMirror, node: Node, by_id: Mapping[int, NodeMirror], removed: Iterable[NodeMirror]
) -> NodeMirror | None:
    """Returns the node from which this new one was split, or None."""
    below = list(node.children.values())
    for child in below:
        lower = by_id.get(child.id)
        if lower is None:
            below.extend(child.children.values())
        elif lower.end_page - lower.span < mirror.end_page:  # parents first: not cut yet
            return lower
    for gone in removed:
        at = mirror.end_page - (gone.end_page - gone.span) - 1
        if not 0 <= at < gone.span or gone.tags[at] != mirror.tags[-1]:
            continue
        for held, gave in zip((tier[0] for tier in node.pages), gone.gave, strict=True):
            if held is not None and gave is not None and gave[at] == held[-1]:
                return gone  # otherwise it was evicted and inserted again
    return None
