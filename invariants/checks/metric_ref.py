"""Hit counts add up."""

from __future__ import annotations

from hicache.core.actions import Prefill, Seated
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import request


class MetricReference(Check):
    name = "METRIC-REF"
    sentence = (
        "The hits of all tiers and the computed tokens sum to the prompt, hits stay within what "
        "may be reused, and the prefills compute exactly the rest, in order."
    )
    watches = (Seated, Prefill)

    def __init__(self) -> None:
        self._next: dict[int, int] = {}  # request: where its next prefill starts

    def issue(self, book: Book, item: Seated | Prefill, view: CoreView) -> None:
        seat = book.seats.by_id.get(item.request)
        if seat is None:
            return
        if type(item) is Seated:
            hits = item.device_pages + item.host_pages
            reused = min(seat.length, hits * book.page_size)
            self._next[item.request] = reused
            if reused + item.computed_tokens != seat.length or hits > seat.match_pages:
                self.fail(
                    f"request {item.request}: device {item.device_pages} + host {item.host_pages} "
                    f"pages of {book.page_size} + computed {item.computed_tokens}, expected a sum "
                    f"of {seat.length} and at most {seat.match_pages} pages",
                    request(item.request),
                )
            if any(depth > seat.match_pages for depth in (*item.depths, item.matched)):
                self.fail(
                    f"request {item.request}: {item.matched} pages known, components valid up to "
                    f"{item.depths}; expected at most {seat.match_pages}",
                    request(item.request),
                )
            return
        start = max(self._next.get(item.request, 0), seat.computed)
        last = item.end == seat.length  # type: ignore[union-attr]
        if item.start != start or not start <= item.end <= seat.length or item.last != last:  # type: ignore[union-attr]
            self.fail(
                f"request {item.request}: prefill {item.start}..{item.end}, last {item.last}; "  # type: ignore[union-attr]
                f"expected to start at {start} and end by {seat.length}",
                request(item.request),
            )
        if last:
            self._next.pop(item.request, None)


def check() -> MetricReference:
    return MetricReference()
