"""A prefetch that brings nothing leaves everything as it was."""

from __future__ import annotations

from hicache.core.actions import Evicted, Fetch, Lookup
from hicache.core.events import FetchDone, LookupDone
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import NODE
from invariants.books.story import flight, request


class FaultSoft(Check):
    name = "FAULT-SOFT"
    sentence = (
        "A lookup that leads to no fetch and a fetch that delivers no boundary leave tree, pages "
        "and requests as if they had not been tried, and a page that storage promised and did not "
        "deliver is not looked up again before it is stored."
    )
    watches = (LookupDone, FetchDone, Lookup)

    def see(self, book: Book, item: LookupDone | FetchDone | Lookup, view: CoreView) -> None:
        if type(item) is Lookup:
            self._trusted(book, item)
            return
        ended, ticket = book.storage.ended, book.answered
        action = ticket.action if ticket is not None else None
        if type(item) is LookupDone:
            nothing = not any(type(one) is Fetch for one in book.outcomes)
        else:
            least = 1 if book.width == 1 else getattr(action, "pages", 0)
            nothing = type(action) is Fetch and item.pages < least  # type: ignore[union-attr]
        if not nothing:
            return
        came = [pages.where for pages in book.pages if any(c & 3 == NODE for _, c in pages.claimed)]
        lost = sum(type(one) is Evicted for one in book.outcomes)
        if came or lost or book.nodes.came or book.nodes.gone:
            self.fail(
                f"flight {item.flight} brought nothing: expected the tree as it was, found "
                f"{book.nodes.came} new nodes, {len(book.nodes.gone)} removed, {lost} evictions, "
                f"and other pages in {came}",
                flight(item.flight),
            )
        for number in () if ended is None else ended.waiters:
            req, found = book.requests.by_id.get(number), view.requests.get(number)
            if req is None or found is None or found.admitted or found.may_load != req.may_load:
                self.fail(
                    f"request {number}: expected it to wait as before its prefetch", request(number)
                )

    def _trusted(self, book: Book, item: Lookup) -> None:
        asked = [one for one in item.digests if one in book.storage.distrusted]
        if asked:
            self.fail(
                f"flight {item.flight} looks for {len(asked)} pages of {len(item.digests)} that "
                "storage did not deliver",
                flight(item.flight),
            )

    def totals(self, book: Book, view: CoreView) -> None:
        if book.history and {*view.distrusted} != book.storage.distrusted.keys():
            self.fail(
                f"pages that storage did not deliver: expected {len(book.storage.distrusted)}, "
                f"found {len(view.distrusted)}"
            )


def check() -> FaultSoft:
    return FaultSoft()
