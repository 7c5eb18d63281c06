"""Hit counts and computed tokens add up to the prompt."""

from __future__ import annotations

from hicache.core.actions import Admitted, Lookup, Prefetched, Prefill
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import brief, request


class MetricReference(Check):
    name = "METRIC-REF"
    sentence = (
        "The hits of all tiers and the computed tokens sum to the prompt, hits stay within what "
        "may be reused, and the prefills compute exactly the rest, in order; a prefetch asks for "
        "no page that may not be reused, finds no more than it asked for and fetches no more than "
        "it found."
    )
    watches = (Admitted, Prefill, Prefetched, Lookup)

    def __init__(self) -> None:
        self._next: dict[int, int] = {}  # by request, the first token of its next prefill

    def see(
        self, book: Book, item: Admitted | Prefill | Prefetched | Lookup, view: CoreView
    ) -> None:
        req = book.requests.by_id.get(item.request)
        if req is None or not isinstance(item, Prefetched | Lookup):
            return
        first, most = item.first_page, len(req.known)
        if isinstance(item, Prefetched):
            asked = item.asked_pages
            wrong = not 0 <= item.fetched_pages <= item.found_pages <= asked
        else:
            asked = len(item.digests)
            wrong = first + asked > most
        if wrong:
            self.fail(
                f"request {req.id}, {most} pages that may be reused: {brief(item)}", request(req.id)
            )

    def issue(
        self, book: Book, item: Admitted | Prefill | Prefetched | Lookup, view: CoreView
    ) -> None:
        req = book.requests.by_id.get(item.request)
        if req is None or isinstance(item, Prefetched | Lookup):
            return
        if isinstance(item, Admitted):
            hits = item.device_pages + item.host_pages
            reused = min(req.length, hits * book.page_size)
            self._next[item.request] = reused
            if reused + item.tokens_to_compute != req.length or hits > req.match_pages:
                self.fail(
                    f"request {item.request}: device {item.device_pages} + host {item.host_pages} "
                    f"pages of {book.page_size} + computed {item.tokens_to_compute}, expected a "
                    f"sum of {req.length} and at most {req.match_pages} pages",
                    request(item.request),
                )
            if any(depth > req.match_pages for depth in (*item.depths, item.matched_pages)):
                self.fail(
                    f"request {item.request}: {item.matched_pages} pages known, components valid "
                    f"up to {item.depths}; expected at most {req.match_pages}",
                    request(item.request),
                )
            return
        start = max(self._next.get(item.request, 0), req.computed_tokens)
        first, end, whole = item.start_token, item.end_token, item.completes_prompt
        last = end == req.length
        if first != start or not start <= end <= req.length or whole != last:
            self.fail(
                f"request {item.request}: prefill {first}..{end}, last {whole}; expected "
                f"to start at {start} and end by {req.length}",
                request(item.request),
            )
        if last:
            self._next.pop(item.request, None)


def check() -> MetricReference:
    return MetricReference()
