"""What nobody used for a time goes, and nothing else does with it."""

from __future__ import annotations

from hicache.core.events import TimePassed
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import node


class Expired(Check):
    name = "EXPIRED"
    sentence = (
        "When a period ends, every node that was not used for as many periods as configured leaves "
        "the tree with all its copies, unless it or a node below it is locked; besides these, only "
        "nodes go that lost their last live boundary by this."
    )
    watches = (TimePassed,)

    def see(self, book: Book, item: TimePassed, view: CoreView) -> None:
        since = book.wants.since
        for mirror in book.nodes.gone:
            if mirror.use[0] > since and mirror.live_distance == 0:  # as it was before
                self.fail(
                    f"node {mirror.id} went, last used at {mirror.use[0]}, and what expires was "
                    f"not used after {since}",
                    node(mirror.id),
                )
        for mirror in book.nodes.by_id.values():
            due = mirror.parent is not None and mirror.use[0] <= since and not mirror.kids
            if due and not any(mirror.locked):
                self.fail(
                    f"node {mirror.id} is a leaf that nobody uses, and stayed; last used at "
                    f"{mirror.use[0]}, what was not used after {since} expires",
                    node(mirror.id),
                )


def check() -> Expired:
    return Expired()
