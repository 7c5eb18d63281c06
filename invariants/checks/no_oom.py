"""What was admitted has room."""

from __future__ import annotations

from hicache.core.actions import Granted, Prefill, Refused
from hicache.core.events import Continued, PagesWanted, PrefillDone
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.book import Book
from invariants.story import request


class NoOom(Check):
    name = "NO-OOM"
    sentence = (
        "A seated request's table always covers its prompt and what it computed, and no chunk of "
        "an admitted prompt is refused."
    )
    kind = LIVENESS
    watches = (Prefill, Granted, Refused)

    def see(self, book: Book, item: Prefill | Granted | Refused, view: CoreView) -> None:
        if type(item) is Refused:
            if type(book.event) is Continued or type(book.event) is PrefillDone:
                self.fail(
                    f"{type(book.event).__name__} of request {item.request} was refused "
                    f"({item.reason})",
                    request(item.request),
                )
            return
        seat = book.seats.by_id.get(item.request)
        if seat is None:
            return
        event = book.event
        if type(item) is Prefill:
            least = max(item.end, seat.length)
        else:
            least = event.length if type(event) is PagesWanted else seat.computed
        room = len(item.table) * book.page_size  # type: ignore[union-attr]
        if room < least or len(seat.table) != len(item.table):  # type: ignore[union-attr]
            self.fail(
                f"request {seat.id}: its table holds {room} tokens, expected at least {least}; "
                f"the core has {len(seat.table)} pages for it",
                request(seat.id),
            )


def check() -> NoOom:
    return NoOom()
