"""What serves a live boundary, and what is garbage."""

from __future__ import annotations

from hicache.core.node import Node
from invariants.base import Check
from invariants.book import Book
from invariants.liveness import near_of, widest
from invariants.shadow import Shadow
from invariants.story import node as node_story

_MANY = 64  # children: as many as are worth looking at after every operation


class Near(Check):
    name = "NEAR"
    sentence = (
        "A node knows how many pages below its end the nearest live boundary is: 0 where every "
        "component has there what it requires, by looking up its path. It names those of its "
        "children, and no other nodes, that end within the farthest reach below its end."
    )

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        if book.history and len(node.children) > _MANY:
            return  # a recount looks at all of them
        expected = near_of(node, book.kinds)
        if node.near != expected:
            self.fail(
                f"node {node.id}, end {node.end}: expected the nearest live boundary {expected} "
                f"pages below, found {node.near}",
                node_story(node.id),
            )
        self._named(book, node)

    def _named(self, book: Book, node: Node) -> None:
        parent = node.parent
        strange = [one.id for one in node.close.values() if one.parent is not node]
        if strange:
            self.fail(
                f"node {node.id}, end {node.end}: expected to name its own children only, found "
                f"nodes {strange[:4]}",
                node_story(node.id),
            )
        if parent is not None:
            near = node.end - parent.end <= widest(book.kinds)
            if near != (parent.close.get(node.id) is node):
                self.fail(
                    f"node {parent.id}, end {parent.end}: expected "
                    f"{'to name' if near else 'not to name'} its child {node.id}, end {node.end}",
                    node_story(node.id),
                )


def check() -> Near:
    return Near()
