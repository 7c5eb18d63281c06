"""Distances to live boundaries, which decide what is garbage."""

from __future__ import annotations

from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story

_MANY = 64  # maximum number of children to check after every operation


class Near(Check):
    name = "NEAR"
    sentence = (
        "A node knows how many pages below its end the nearest live boundary is; it is 0 where "
        "every component has what it requires on the path to that end. A node knows those of its "
        "children that end within the largest window below its end, and no others."
    )
    of_several = True  # with full attention alone, every end is a live boundary

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None:
            return
        if node.live_distance != mirror.live_distance:
            self.fail(
                f"node {node.id}, end {node.end_page}: expected the nearest live boundary "
                f"{mirror.live_distance} pages below, found {node.live_distance}",
                node_story(node.id),
            )
        most = book.nodes.widest
        if book.history and len(node.children) > _MANY:
            return  # a recount compares all of them
        close = {
            child.id for child in node.children.values() if child.end_page - node.end_page <= most
        }
        if node.children_in_reach.keys() != close:
            self.fail(
                f"node {node.id}, end {node.end_page}: expected the close children "
                f"{sorted(close)}, found {sorted(node.children_in_reach)}",
                node_story(node.id),
            )


def check() -> Near:
    return Near()
