"""The memory of page numbers is bounded by what is alive."""

from __future__ import annotations

from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book

from ._memory import arrays_of, kept_bytes, needed_bytes

SLACK = 1  # a node that came and went within one operation


class RssBound(Check):
    name = "RSS-BOUND"
    sentence = (
        "The page numbers that nodes, requests and actions in flight keep in memory, the whole "
        "array below each view included, take no more bytes than their live pages need; an "
        "eviction queue has at most twice as many entries as there ever were nodes."
    )

    def __init__(self) -> None:
        self._most = 0  # nodes

    def totals(self, book: Book, view: CoreView) -> None:
        self._most = max(self._most, len(book.nodes.by_id))

    def audit(self, book: Book, view: CoreView) -> None:
        kept, needed = kept_bytes(arrays_of(view)), needed_bytes(book)
        if kept > needed:
            self.fail(
                f"page numbers in memory: expected at most {needed} bytes for "
                f"{len(book.nodes.by_id)} nodes, {len(book.requests.by_id)} requests and "
                f"{len(book.tickets.open)} actions in flight, found {kept}"
            )
        most = max(view.least_swept, 2 * (self._most + SLACK))
        for queue in book.nodes.queues:
            if len(queue.ranks) > most:
                self.fail(
                    f"an eviction queue with {len(queue.ranks)} entries, expected at most {most}: "
                    f"there were never more than {self._most} nodes"
                )


def check() -> RssBound:
    return RssBound()
