"""A request that is alone gets what it needs, even in the smallest legal pools."""

from __future__ import annotations

from hicache.core.actions import Refused
from hicache.core.events import AdmitWanted, ContinueWanted, PagesWanted
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.story import request


class Alone(Check):
    name = "ALONE"
    sentence = (
        "While no other request is admitted and nothing is in flight, a request that fits the "
        "pools is never refused for lack of pages: not its admission, not its next chunk, and not "
        "its growth, if its window, an interval and the pages that it has not computed leave room "
        "for what it asks."
    )
    kind = LIVENESS
    watches = (Refused,)

    def see(self, book: Book, item: Refused, view: CoreView) -> None:
        if item.reason not in ("no_pages", "writing_back"):
            return
        req = book.requests.by_id.get(item.request)
        others = book.requests.admitted - (req is not None and req.admitted)
        if req is None or others or len(book.tickets.open) > len(book.tickets.fresh):
            return
        if book.tickets.fresh and item.reason == "writing_back":
            return  # the reply that it waits for is to a copy that it has just begun
        event, index = book.event, book.index_of(item.component)
        kind, have = book.kinds[index], len(req.tables[0])
        pinned = len(book.wants.before.get(index, ()))  # of these, it may reuse some
        asked, room = 1, book.pages[index].capacity - pinned
        if type(event) is PagesWanted:
            asked = -(-event.length // book.page_size) - have
            room -= have
            if index and not event.computed_tokens:
                return  # it did not say which pages its window has passed
            if index:
                computed = max(event.computed_tokens, req.computed_tokens) // book.page_size
                between = max(one.interval for one in book.kinds) // book.page_size - 1
                room = book.pages[index].capacity - pinned - kind.need - between - (have - computed)
        elif type(event) not in (AdmitWanted, ContinueWanted):
            return
        if asked <= room:
            self.fail(
                f"request {item.request} is alone and was refused ({item.reason}): {asked} "
                f"{item.component} pages asked, and there is room for {room} beside what it must "
                f"keep",
                request(item.request),
            )


def check() -> Alone:
    return Alone()
