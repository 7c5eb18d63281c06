"""What serves a live boundary, and what is garbage."""

from __future__ import annotations

from hicache.core.node import Node
from invariants.base import Check
from invariants.book import Book
from invariants.liveness import near_of
from invariants.shadow import Shadow
from invariants.story import node as node_story


class Near(Check):
    name = "NEAR"
    sentence = (
        "A node knows how many pages below its end the nearest live boundary is: 0 where every "
        "component has there what it requires, by looking up its path."
    )

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        expected = near_of(node, book.kinds)
        if node.near != expected:
            self.fail(
                f"node {node.id}, end {node.end}: expected the nearest live boundary {expected} "
                f"pages below, found {node.near}",
                node_story(node.id),
            )


def check() -> Near:
    return Near()
