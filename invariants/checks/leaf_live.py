"""A leaf that cannot be reused is in the garbage queues."""

from __future__ import annotations

from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.distances import is_live
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


class LeafLive(Check):
    name = "LEAF-LIVE"
    sentence = (
        "If the end of a leaf is no live boundary, everything of the leaf that can be evicted is "
        "in the garbage part of its pool's queue and is evicted first."
    )
    of_several = True

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None or node.children or is_live(mirror, book.kinds):
            return
        for kind in book.kinds:
            for queue in range(3):
                at = 3 * kind.at + queue
                if not mirror.candidate >> at & 1:
                    continue
                serving, garbage = node.queued >> 2 * at & 1, node.queued >> 2 * at + 1 & 1
                if not garbage:
                    self.fail(
                        f"leaf {node.id}, end {node.end_page}, is no live boundary: expected its "
                        f"{kind.name} among the garbage of queue {queue}, found it "
                        f"{'among what serves' if serving else 'in no queue'}",
                        node_story(node.id),
                    )


def check() -> LeafLive:
    return LeafLive()
