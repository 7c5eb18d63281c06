"""Every node has pages."""

from __future__ import annotations

from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


class DeadNode(Check):
    name = "DEAD-NODE"
    sentence = "Every reachable node has pages of full attention on device or on host."

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is not None and node.pages[0][0] is None and node.pages[1][0] is None:
            self.fail(
                f"node {node.id}, {len(node.key)} bytes of key, {len(node.children)} children: "
                "expected pages on a tier, found none",
                node_story(node.id),
            )


def check() -> DeadNode:
    return DeadNode()
