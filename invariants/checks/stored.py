"""What is believed to be stored."""

from __future__ import annotations

from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


class Stored(Check):
    name = "STORED"
    sentence = "What is believed to be stored was acknowledged since storage was attached."

    def totals(self, book: Book, view: CoreView) -> None:
        if book.history and book.storage.seen:
            for mirror in book.nodes.dirty.values():
                self._believed(book, mirror, view)

    def audit(self, book: Book, view: CoreView) -> None:
        for mirror in book.nodes.by_id.values():
            self._believed(book, mirror, view)

    def _believed(self, book: Book, mirror: NodeMirror, view: CoreView) -> None:
        digests, record = mirror.digests or (), mirror.node
        if record is None or mirror.parent is None:
            return
        for kind in book.kinds:
            if not view.believed(record, kind.at):
                continue
            wanted = digests if kind.positional else digests[-1:]
            known = sum((kind.at, one) in book.storage.acknowledged for one in wanted)
            if not book.storage.attached or known < len(wanted) or not wanted:
                self.fail(
                    f"node {mirror.id}: its {kind.name} is believed to be stored; {known} of "
                    f"{len(wanted)} pages were acknowledged since storage was attached",
                    node_story(mirror.id),
                )


def check() -> Stored:
    return Stored()
