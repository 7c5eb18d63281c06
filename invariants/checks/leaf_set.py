"""Eviction candidates against their definition."""

from __future__ import annotations

from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.shadow import DEVICE, DUPLICATE, HOST, Shadow
from invariants.story import node as node_story

_NAMES = ("device leaf", "host leaf", "duplicate")


class LeafSet(Check):
    name = "LEAF-SET"
    sentence = (
        "Unlocked nodes without a child on their tier are exactly those that eviction can find, "
        "and each node knows how many children it has on each tier."
    )

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        if node.with_pages != shadow.kids_on:
            self.fail(
                f"node {node.id}: expected {shadow.kids_on} children on (device, host), found "
                f"{node.with_pages}",
                node_story(node.id),
            )
        lacking = shadow.candidate & ~node.queued
        if lacking:
            queue = lacking.bit_length() - 1
            self.fail(
                f"node {node.id} is a {_NAMES[queue]}: expected an entry in queue {queue}, found "
                f"queues {[index for index in range(3) if node.queued >> index & 1]}",
                node_story(node.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        for queue in (DEVICE, HOST, DUPLICATE):
            members = view.queue_entries(queue)
            known = {node_id for _, node_id in members}
            for shadow in book.nodes.by_id.values():
                if shadow.candidate >> queue & 1 and shadow.id not in known:
                    self.fail(
                        f"node {shadow.id} is a {_NAMES[queue]}: expected in queue {queue}, found "
                        f"{len(members)} other entries",
                        node_story(shadow.id),
                    )


def check() -> LeafSet:
    return LeafSet()
