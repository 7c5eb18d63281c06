"""The logical clock, the facts that define the order of eviction, and the queues."""

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
        "The last use of a node is the tick of the last admission or insertion on its path, and "
        "its hits, its priority and the tick of its insertion follow from the requests that used "
        "it, as do its visits, and its age from what was evicted before the last of them; a queue "
        "holds a node at most once, and not behind its rank, which only grows."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None:
            return
        if node.hits != mirror.hits or node.priority != mirror.priority:
            self._facts(mirror, node)
        if node.inserted != mirror.inserted:
            self._facts(mirror, node)
        if book.nodes.declared.key is not None and node.marks.visits:
            self._marks(book, mirror, node)
        if node.last_use == mirror.use:
            return
        for kind in book.kinds:
            at = kind.at
            held = mirror.pages[at] is not None or mirror.pages[book.width + at] is not None
            if held and node.last_use[at] != mirror.use[at]:
                self.fail(
                    f"node {node.id}, {kind.name}: expected last use {mirror.use[at]}, found "
                    f"{node.last_use[at]}",
                    node_story(node.id),
                )

    def _facts(self, mirror: NodeMirror, node: Node) -> None:
        for name in ("hits", "priority", "inserted"):
            expected, found = getattr(mirror, name), getattr(node, name)
            if expected != found:
                self.fail(
                    f"node {node.id}, {name}: expected {expected}, found {found}",
                    node_story(node.id),
                )

    def _marks(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        for name in ("visits", "age", "cost", "earlier"):
            expected, found = getattr(mirror, name), getattr(node.marks, name)
            if expected != found:
                self.fail(
                    f"node {node.id}, {name}: expected {expected}, found {found}",
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
