"""The eviction candidates of full attention. DLRU and HLRU check those of other components."""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import DEVICE, DUPLICATE, HOST, NodeMirror, serves
from invariants.books.story import node as node_story

_NAMES = ("candidate on device", "candidate on host", "duplicate")


class LeafSet(Check):
    name = "LEAF-SET"
    sentence = (
        "The unlocked nodes without a child on their tier are exactly those that eviction can "
        "find, and each node knows its children on each tier."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if [*node.with_pages] != mirror.kids_on:
            self.fail(
                f"node {node.id}: expected {mirror.kids_on} children on (device, host), found "
                f"{[*node.with_pages]}",
                node_story(node.id),
            )
        bits, queued = mirror.candidate, node.queued
        garbage = not serves(book.kinds[0], mirror.live_distance)
        for queue in (DEVICE, HOST, DUPLICATE) if bits else ():
            if bits >> queue & 1 and not queued >> 2 * queue + garbage & 1:
                self.fail(
                    f"node {node.id} is a {_NAMES[queue]}, garbage: {garbage}; expected an entry "
                    f"in part {2 * queue + garbage}, found parts "
                    f"{[part for part in range(6) if queued >> part & 1]}",
                    node_story(node.id),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        for queue in (DEVICE, HOST, DUPLICATE):
            serving, garbage = book.nodes.queues[2 * queue : 2 * queue + 2]
            known = {*serving.members, *garbage.members}
            for mirror in book.nodes.by_id.values():
                if mirror.candidate >> queue & 1 and mirror.id not in known:
                    self.fail(
                        f"node {mirror.id} is a {_NAMES[queue]}: expected in queue {queue}, found "
                        f"{len(serving.members) + len(garbage.members)} other entries",
                        node_story(mirror.id),
                    )


def check() -> LeafSet:
    return LeafSet()
