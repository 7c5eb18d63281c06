"""The pages on device form a prefix of each path."""

from __future__ import annotations

from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


class DevicePrefix(Check):
    name = "DEVICE-PREFIX"
    sentence = (
        "The device pages of full attention form a prefix of every path, and no other component "
        "is on device without them."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if mirror.parent is not None and mirror.kids_on[0] and mirror.pages[0] is None:
            self.fail(
                f"node {node.id} is not on device, {mirror.kids_on[0]} of its children are",
                node_story(node.id),
            )
        if mirror.pages[0] is None and any(
            mirror.pages[index] is not None for index in range(1, book.width)
        ):
            names = [kind.name for kind in book.kinds[1:] if mirror.pages[kind.at] is not None]
            self.fail(
                f"node {node.id}: {', '.join(names)} on device, full is not", node_story(node.id)
            )


def check() -> DevicePrefix:
    return DevicePrefix()
