"""The logical clock of use, and what the eviction queues know of it."""

from __future__ import annotations

from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.shadow import Shadow
from invariants.story import node as node_story


class Lru(Check):
    name = "LRU"
    sentence = (
        "A node's last use is the tick of the last seat or insert on its path, and a queue holds "
        "a node at most once, never behind its last use."
    )

    def node(self, book: Book, shadow: Shadow, node: Node) -> None:
        if node.parent is not None and node.last_use != shadow.use:
            self.fail(
                f"node {node.id}: expected last use {shadow.use}, found {node.last_use}",
                node_story(node.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        if view.tick != book.nodes.clock:
            self.fail(f"ticks: expected {book.nodes.clock}, found {view.tick}")
        for queue in range(3):
            entries = view.queue_entries(queue)
            members = [node_id for _, node_id in entries]
            if len(set(members)) != len(members):
                twice = next(one for one in members if members.count(one) > 1)
                self.fail(
                    f"queue {queue}: expected node {twice} once, "
                    f"found {members.count(twice)} times",
                    node_story(twice),
                )
            for rank, node_id in entries:
                shadow = book.nodes.by_id.get(node_id)
                record = shadow.node if shadow is not None else None
                if record is not None and not record.queued >> queue & 1:
                    self.fail(
                        f"queue {queue} has node {node_id}, which does not know it",
                        node_story(node_id),
                    )
                if record is not None and rank > record.last_use:
                    self.fail(
                        f"queue {queue}: expected node {node_id} at rank {record.last_use} or "
                        f"before, found {rank}",
                        node_story(node_id),
                    )


def check() -> Lru:
    return Lru()
