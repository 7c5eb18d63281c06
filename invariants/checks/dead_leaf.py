"""A leaf without a live boundary is removed at once."""

from __future__ import annotations

from hicache.core.events import AdmitWanted, EvictWanted, PagesWanted
from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story

_ENDS_NO_LOCK = (EvictWanted, AdmitWanted, PagesWanted)


class DeadLeaf(Check):
    name = "DEAD-LEAF"
    sentence = (
        "A leaf that loses its last live boundary leaves the tree in the same operation, with "
        "everything that it has on every tier, unless it is locked; this is "
        "checked after operations that release no lock."
    )
    of_several = True

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if type(book.event) not in _ENDS_NO_LOCK:
            return  # its holder may have released it since
        if mirror.id not in book.nodes.died or node.children or node.parent is None:
            return
        if not any(mirror.locked):
            self.fail(
                f"leaf {node.id}, end {node.end_page}, lost its last live boundary: expected it to "
                "be gone, found it in the tree",
                node_story(node.id),
            )


def check() -> DeadLeaf:
    return DeadLeaf()
