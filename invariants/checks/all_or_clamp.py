"""Loads and insertions make complete boundaries."""

from __future__ import annotations

from hicache.core.actions import Admitted, Cached
from hicache.core.events import LoadDone
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import NODE, name_of
from invariants.books.requests import RequestMirror
from invariants.books.story import page, request


class AllOrClamp(Check):
    name = "ALL-OR-CLAMP"
    sentence = (
        "A load or an insertion makes whole boundaries: after it lands, everything that the "
        "request's boundary requires of every component is on device; after it fails, none of its "
        "pages is cached."
    )
    watches = (Cached, Admitted, LoadDone)

    def see(self, book: Book, item: Cached | Admitted | LoadDone, view: CoreView) -> None:
        if type(item) is LoadDone:
            ticket = book.answered
            if ticket is None:
                return
            if not item.ok:
                self._nothing(book, item)
            req = next(
                (one for one in book.requests.by_id.values() if one.id == ticket.request), None
            )
        else:
            req = book.requests.by_id.get(item.request)  # type: ignore[union-attr]
        if req is not None and req.admitted and not req.load:
            self._whole(book, req)

    def _whole(self, book: Book, req: RequestMirror) -> None:
        depth = req.boundary
        for kind in book.kinds:
            there = book.nodes.resident[kind.at]
            first = max(0, depth - kind.need, req.low - kind.need if kind.positional else 0)
            known = req.tags[first:depth].tolist()
            if len(known) == depth - first and there.issuperset(known):
                continue
            for at in range(depth - 1, first - 1, -1):
                if int(req.tags[at]) not in there:
                    self.fail(
                        f"request {req.id}, boundary {depth}: expected {kind.name} on device at "
                        f"pages {first}..{depth}, page {at} is not there",
                        request(req.id),
                    )

    def _nothing(self, book: Book, item: LoadDone) -> None:
        ticket = book.answered
        for move in ticket.moves if ticket is not None else ():
            pages = book.pages[move.at]
            kept = move.target[pages.owner[move.target] & 3 == NODE]
            if len(kept):
                self.fail(
                    f"flight {item.flight} failed, and {pages.where} page {kept[0]}, which it was "
                    f"to fill, is {name_of(int(pages.owner[kept[0]]))}'s",
                    page(pages, int(kept[0])),
                )


def check() -> AllOrClamp:
    return AllOrClamp()
