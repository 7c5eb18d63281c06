"""Host copies are contiguous from the root, if the write policy guarantees it."""

from __future__ import annotations

from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


class ParentBackedUp(Check):
    name = "PARENT-BK"
    sentence = (
        "Under a write policy that keeps host copies contiguous, they are so from the root, and no "
        "other component is on host without full attention (write_back does not guarantee this)."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if not book.writes.contiguous or mirror.parent is None:
            return
        above = mirror.parent
        if (
            node.pages[1][0] is not None
            and above.parent is not None
            and above.pages[book.width] is None
        ):
            self.fail(
                f"node {node.id} has a host copy, its parent {above.id} has none",
                node_story(node.id),
                node_story(above.id),
            )
        if mirror.kids_on[1] and mirror.pages[book.width] is None:
            self.fail(
                f"node {node.id} has no host copy, {mirror.kids_on[1]} of its children have one",
                node_story(node.id),
            )
        if node.pages[1][0] is None and any(pages is not None for pages in node.pages[1]):
            names = [kind.name for kind in book.kinds if node.pages[1][kind.at] is not None]
            self.fail(
                f"node {node.id}: {', '.join(names)} on host, full is not", node_story(node.id)
            )


def check() -> ParentBackedUp:
    return ParentBackedUp()
