"""Pages are stored, looked up and fetched under the digests of their own prefixes."""

from __future__ import annotations

from hicache.core.actions import Fetch, Lookup, Store
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import flight, request

from ._storage import parts_of


class KeyRoundTrip(Check):
    name = "KEY-RT"
    sentence = (
        "The digest under which a page is looked up, fetched or stored is the chain digest of the "
        "tokens of its whole prefix and of its namespace, computed again from the request or from "
        "the path of the node."
    )
    watches = (Lookup, Fetch, Store)

    def see(self, book: Book, item: Lookup | Fetch | Store, view: CoreView) -> None:
        if type(item) is Store:
            self._stored(book, item)
            return
        if type(item) is Lookup:
            known, above = book.storage.digests.get(item.request, ()), 0
            runs = [(item.first_page, item.digests)]
        else:  # the lookup that it follows was for the prompt
            prefetch = book.storage.prefetches.get(item.flight)
            known, above = (prefetch.digests, prefetch.first) if prefetch is not None else ((), 0)
            runs = [(piece.first_page, piece.digests) for piece in item.pieces]  # type: ignore[union-attr]
        for first, digests in runs:
            if first < above or digests != known[first - above : first - above + len(digests)]:
                self.fail(
                    f"flight {item.flight}, pages {first}..{first + len(digests)} for request "
                    f"{item.request}: expected the digests of the prompt, found others",  # type: ignore[union-attr]
                    flight(item.flight),
                    request(item.request),  # type: ignore[union-attr]
                )

    def _stored(self, book: Book, item: Store) -> None:
        for part in parts_of(book, book.tickets.open[item.flight]):
            mirror = part.mirror
            if mirror is None:
                self.fail(
                    f"flight {item.flight} stores {book.kinds[part.at].name} pages that no node "
                    "has on host",
                    flight(item.flight),
                )
            start = part.first - (mirror.end_page - mirror.span)
            known = (mirror.digests or ())[start : start + len(part.digests)] if start >= 0 else ()
            if known != part.digests:
                self.fail(
                    f"flight {item.flight} stores pages {part.first}.."
                    f"{part.first + len(part.digests)} of node {mirror.id}: expected the digests "
                    "of its path, found others",
                    flight(item.flight),
                )


def check() -> KeyRoundTrip:
    return KeyRoundTrip()
