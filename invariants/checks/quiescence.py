"""No pages leak."""

from __future__ import annotations

from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.pages import NODE


class Quiescence(Check):
    name = "QUIESCENCE"
    sentence = (
        "Once everything is released and all copies have ended, every page is free or cached, and "
        "every cached page that is not pinned can be evicted."
    )
    kind = LIVENESS

    def still(self, book: Book, view: CoreView) -> None:
        pinned = book.wants.pinned()
        for slot, pages in enumerate(book.pages):
            pool = view.pool(pages.tier, pages.component)
            cached = pages.held[NODE]
            most = cached - len(pinned.get(slot, ()))
            if pool.counts[PageState.FREE] + cached != pages.capacity or pool.evictable != most:
                self.fail(
                    f"{pages.where}: free {pool.counts[PageState.FREE]} + cached "
                    f"{cached}, expected {pages.capacity}; evictable {pool.evictable}",
                    story.pool(pages),
                )
        admitted = sum(request.admitted for request in view.requests.values())
        if admitted:
            self.fail(
                f"expected no admitted request, found {admitted}",
                *(story.request(one.id) for one in view.requests.values() if one.admitted),
            )


def check() -> Quiescence:
    return Quiescence()
