"""Hit counts and computed tokens add up to the prompt."""

from __future__ import annotations

from hicache.core.actions import Admitted, Lookup, Prefetched, Prefill
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.reference import find
from invariants.books.story import request


class MetricReference(Check):
    name = "METRIC-REF"
    sentence = (
        "The hits of all tiers and the computed tokens sum to the prompt, hits stay within what "
        "may be reused, and the prefills compute exactly the rest, in order; a prefetch asks for "
        "no page that is cached or may not be reused, finds no more than it asked for and fetches "
        "no more than it found."
    )
    watches = (Admitted, Prefill, Prefetched, Lookup)

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[int, int] = {}  # by request, the first token of its next prefill

    def see(
        self, book: Book, item: Admitted | Prefill | Prefetched | Lookup, view: CoreView
    ) -> None:
        """A prefetch begins behind what is cached, and ends within what may be reused."""
        req = book.requests.by_id.get(item.request)
        if req is None or not isinstance(item, Prefetched | Lookup):
            return
        ended, first, most = book.storage.closed.get(req.id), item.first_page, len(req.known)
        asked = len(item.digests) if type(item) is Lookup else item.asked_pages  # type: ignore[union-attr]
        if type(item) is Prefetched:
            if not 0 <= item.fetched_pages <= item.found_pages <= asked:
                self.fail(
                    f"request {req.id}: asked for {asked} pages, found {item.found_pages} and "
                    f"fetched {item.fetched_pages}; expected no more of each than of the last",
                    request(req.id),
                )
            if ended is not None and ended is not book.storage.ended:
                return  # it has joined a prefetch that began elsewhere
        best = find(req.known, book.nodes.resident, book.kinds).best
        begins = type(item) is Lookup or ended is None or item.request != book.storage.owner(ended)
        if begins and (first != best or first + asked > most):
            self.fail(
                f"request {req.id}: asked storage for pages {first}..{first + asked}; expected "
                f"them to begin at {best}, and at most {most}",
                request(req.id),
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
