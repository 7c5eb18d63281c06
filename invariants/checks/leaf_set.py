"""Eviction candidates against their definition."""

from __future__ import annotations

from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.shadow import DEVICE, DUPLICATE, HOST, Shadow, serves
from invariants.story import node as node_story

_NAMES = ("candidate on device", "candidate on host", "duplicate")


class LeafSet(Check):
    name = "LEAF-SET"
    sentence = (
        "Unlocked nodes without a child on their tier, and unlocked copies of other components, "
        "are exactly those that eviction can find, and each node knows its children on each tier."
    )

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        if node.with_pages != shadow.kids_on:
            self.fail(
                f"node {node.id}: expected {shadow.kids_on} children on (device, host), found "
                f"{node.with_pages}",
                node_story(node.id),
            )
        bits, queued = shadow.candidate, node.queued
        for kind in book.kinds if bits else ():
            garbage = not serves(kind, node.near)
            for queue in (DEVICE, HOST, DUPLICATE):
                at = 3 * kind.at + queue
                if bits >> at & 1 and not queued >> 2 * at + garbage & 1:
                    self.fail(
                        f"node {node.id} is a {_NAMES[queue]} of {kind.name}, garbage: {garbage}; "
                        f"expected an entry in part {2 * at + garbage}, found parts "
                        f"{[part for part in range(6 * book.width) if queued >> part & 1]}",
                        node_story(node.id),
                    )

    def audit(self, book: Book, view: CoreView) -> None:
        for kind in book.kinds:
            for queue in (DEVICE, HOST, DUPLICATE):
                parts = [view.queue_entries(queue, kind.at, part) for part in (False, True)]
                members = parts[0] + parts[1]
                known = {entry[-1] for entry in members}
                for shadow in book.nodes.by_id.values():
                    if shadow.candidate >> 3 * kind.at + queue & 1 and shadow.id not in known:
                        self.fail(
                            f"node {shadow.id} is a {_NAMES[queue]} of {kind.name}: expected in "
                            f"queue {queue}, found {len(members)} other entries",
                            node_story(shadow.id),
                        )


def check() -> LeafSet:
    return LeafSet()
