"""A request locks its window, and no more."""

from __future__ import annotations

from hicache.core.actions import Admitted, Cached, Granted
from hicache.core.radix.node import Request
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import request


class LockSpan(Check):
    name = "LOCK-SPAN"
    sentence = (
        "A request locks at most its window and one page of a windowed component, and one state "
        "of a recurrence; the pages of a shared window that it still reads are locked."
    )
    of_several = True
    watches = (Admitted, Cached, Granted)

    def see(self, book: Book, item: Admitted | Cached | Granted, view: CoreView) -> None:
        record = view.requests.get(item.request)
        if record is not None and book.width > 1:
            self._span(book, record)

    def audit(self, book: Book, view: CoreView) -> None:
        for record in view.requests.values():
            self._span(book, record)

    def _span(self, book: Book, record: Request) -> None:
        if record.receipt is None:
            return
        for kind in book.kinds[1:]:
            held = [node.pages[0][kind.at] for node, tier in record.receipt.locked[kind.at]]
            pages = sum(len(one) for one in held if one is not None)
            most = kind.window + book.page_size if kind.positional else book.page_size
            if pages * book.page_size > most:
                self.fail(
                    f"request {record.id}: {pages} pages of {book.page_size} {kind.name} tokens "
                    f"locked, expected at most {most} tokens",
                    request(record.id),
                )
            if not kind.positional or record.load:
                continue
            shared = record.tables[kind.at][: record.shared_pages]
            pages_of = book.pages[kind.at]
            loose = [one for one in shared[shared >= 0].tolist() if not pages_of.locks[one]]
            if loose:
                self.fail(
                    f"request {record.id}: its table names {len(loose)} {kind.name} pages of nodes "
                    f"that nobody locks, first {loose[0]}",
                    request(record.id),
                )


def check() -> LockSpan:
    return LockSpan()
