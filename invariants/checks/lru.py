"""The logical clock, the last use of nodes, and the queues."""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


class Lru(Check):
    name = "LRU"
    sentence = (
        "The last use of a node is the tick of the last admission or insertion on its path, and no "
        "component of it was used later; a queue holds a node at most once, and not behind its "
        "rank, which only grows."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None:
            return
        if node.last_use[0] != mirror.use or max(node.last_use) > mirror.use:
            self.fail(
                f"node {node.id}: expected last use {mirror.use}, and none of another component "
                f"after it, found {node.last_use}",
                node_story(node.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        if view.tick != book.nodes.clock:
            self.fail(f"ticks: expected {book.nodes.clock}, found {view.tick}")
        for kind in book.kinds:
            for part in range(6):
                self._queue(book, view, f"{kind.name} queue {part // 2}", 6 * kind.at + part)

    def _queue(self, book: Book, view: CoreView, name: str, part: int) -> None:
        ranks, members = book.nodes.queues[part]
        if len(set(members)) != len(members):
            twice = next(one for one in members if members.count(one) > 1)
            self.fail(
                f"{name}: expected node {twice} once, found {members.count(twice)} times",
                node_story(twice),
            )
        for rank, node_id in zip(ranks, members, strict=True):
            mirror = book.nodes.by_id.get(node_id)
            record = mirror.node if mirror is not None else None
            if record is None:
                continue
            if not record.queued >> part & 1:
                self.fail(f"{name} has node {node_id}, which does not know it", node_story(node_id))
            now = view.eviction.rank(record, part // 6)
            if rank > now:
                self.fail(
                    f"{name}: expected node {node_id} at rank {now} or before, found {rank}; "
                    f"either the queue is wrong, or a rank of {view.eviction.name} fell",
                    node_story(node_id),
                )


def check() -> Lru:
    return Lru()
