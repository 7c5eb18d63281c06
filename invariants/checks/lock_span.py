"""A request locks its window, and no more."""

from __future__ import annotations

from hicache.core.actions import Admitted, Cached, Granted
from hicache.core.requests.record import Request
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import NODE
from invariants.books.requests import RequestMirror
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
        record, req = view.requests.get(item.request), book.requests.by_id.get(item.request)
        if record is not None and req is not None and book.width > 1:
            self._span(book, record, req)

    def audit(self, book: Book, view: CoreView) -> None:
        for record in view.requests.values():
            req = book.requests.by_id.get(record.id)
            if req is not None:
                self._span(book, record, req)

    def _span(self, book: Book, record: Request, req: RequestMirror) -> None:
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
            if not kind.positional:
                continue
            shared = req.tables[kind.at][: req.boundary]
            shared, pages_of = shared[shared >= 0], book.pages[kind.at]
            ours = shared[pages_of.owner[shared] & 3 == NODE]  # the others are a load's
            loose = ours[pages_of.locks[ours] == 0].tolist()
            if loose:
                self.fail(
                    f"request {record.id}: its table names {len(loose)} {kind.name} pages of nodes "
                    f"that nobody locks, first {loose[0]}",
                    request(record.id),
                )


def check() -> LockSpan:
    return LockSpan()
