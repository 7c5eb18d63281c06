"""Requests wait for their own prefetch, only while it runs, and hear of its end once."""

from __future__ import annotations

from hicache.core.actions import Admitted, Delete, Prefetched, Refused
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    DetachWanted,
    Event,
    FetchDone,
    Flushed,
    LookupDone,
    PrefetchLimitReached,
)
from hicache.core.types import FlightId
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.storage import Prefetch, abandoned
from invariants.books.story import flight, request

from ._storage import open_storage

_REASONS: dict[type, tuple[str, ...]] = {
    Flushed: ("flushed",),
    DetachWanted: ("detached",),
    AdmitWanted: ("late",),
    PrefetchLimitReached: ("late",),
}


class PrefetchWait(Check):
    name = "PREFETCH-WAIT"
    sentence = (
        "A waiting request is refused as fetching only while a prefetch of pages that it lacks is "
        "under way and the policy waits for it, and is not admitted before that has ended; it "
        "hears exactly once of each prefetch, with its figures; no page is looked up for two at a "
        "time, and those that share a prefetch stand in the order of their arrival; a flight for "
        "which nobody waits any more is reported as abandoned, once."
    )
    kind = LIVENESS
    watches = (Refused, Admitted)

    def __init__(self) -> None:
        super().__init__()
        self._left: set[FlightId] = set()  # flights in flight that were reported as abandoned

    def see(self, book: Book, item: Refused | Admitted, view: CoreView) -> None:
        number, storage = item.request, book.storage
        waits, policy = storage.waits.get(number, 0), view.prefetching.waits
        if type(item) is Admitted:
            if waits or (policy and number in storage.closed):
                self.fail(
                    f"request {number} was admitted while its prefetch {waits} is under way",
                    request(number),
                )
        elif item.reason == "fetching":  # type: ignore[union-attr]
            if not policy or not waits or item.after != waits:  # type: ignore[union-attr]
                self.fail(
                    f"request {number}, refused (fetching) until flight {item.after} is answered: "  # type: ignore[union-attr]
                    f"expected flight {waits} and a policy that waits: {policy}",
                    request(number),
                )
        elif type(book.event) is AdmitWanted and waits and item.reason != "too_large":  # type: ignore[union-attr]
            self.fail(
                f"request {number} waits for flight {waits}, and was refused ({item.reason})",  # type: ignore[union-attr]
                request(number),
            )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history:
            return
        self._notices(book)
        self._reported(book)
        for number in view.touched_requests:
            self._prefetch_of(book, view, number)
            waits = book.storage.waits.get(number, 0)
            if waits:
                self._waiters_of(book, view, waits)
        for one in book.storage.lost:
            self.fail(
                f"request {one} lacks pages that it may reuse: expected a lookup, a notice or a "
                "prefetch that covers them, found none",
                request(one),
            )

        for one in book.storage.doubled:
            self.fail(
                f"flight {one} looks for a page that an older prefetch covers; expected its "
                "request to wait for that",
                flight(one),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        for number in view.requests:
            self._prefetch_of(book, view, number)
        for number in book.storage.prefetches:
            self._waiters_of(book, view, number)

    def _waiters_of(self, book: Book, view: CoreView, number: FlightId) -> None:
        one = view.flights.get(number)
        found = one.waiters if one is not None else []
        expected = book.storage.in_order(book.storage.prefetches[number])
        if found != expected:
            self.fail(
                f"flight {number}: expected requests {expected} to wait, in the order of their "
                f"arrival, found {found}",
                flight(number),
            )

    def _prefetch_of(self, book: Book, view: CoreView, number: int) -> None:
        one = view.requests.get(number)
        expected = book.storage.waits.get(number, 0)
        if one is not None and one.prefetch != expected:
            self.fail(
                f"request {number}: expected it to wait for {expected}, found {one.prefetch}",
                request(number),
            )

    def _notices(self, book: Book) -> None:
        told: dict[int, Prefetched] = {}
        for item in book.outcomes:
            if type(item) is Prefetched:
                if item.request in told:
                    self.fail(f"request {item.request} was told twice", request(item.request))
                told[item.request] = item
        storage = book.storage
        for number in storage.told:
            notice, prefetch = told.get(number), storage.closed.get(number)
            if notice is None:
                self.fail(
                    f"the prefetch of request {number} has ended, and it was not told",
                    request(number),
                )
            if prefetch is not None:
                self._figures(book, notice, prefetch)
        for number in told:
            begins = type(book.event) is Arrived and book.event.request == number
            if not begins and number not in storage.told:
                self.fail(
                    f"request {number} was told of a prefetch, and has waited for none",
                    request(number),
                )

    def _figures(self, book: Book, notice: Prefetched, prefetch: Prefetch) -> None:
        """What the notice says of a prefetch that it waited for."""
        storage = book.storage
        if prefetch is storage.ended and notice.request != storage.owner(prefetch):
            return  # it looked again, and was refused a prefetch of its own
        found = (notice.first_page, notice.asked_pages, notice.found_pages)
        expected = (prefetch.first, prefetch.asked, prefetch.found)
        reasons = _REASONS.get(type(book.event)) or _reasons(book, book.event)
        if found != expected or notice.reason not in reasons:
            self.fail(
                f"request {notice.request}: expected a prefetch that begins at page, asked for and "
                f"found {expected}, and ended as one of {reasons}; found {found} and "
                f"{notice.reason!r}",
                request(notice.request),
            )

    def _reported(self, book: Book) -> None:
        expected = book.storage.left
        if any(type(item) is Refused for item in book.outcomes):
            return self._count(book, expected)
        if type(book.event) is Flushed or type(book.event) is DetachWanted:
            before = [one for one in open_storage(book) if one <= book.tickets.settled]
            deletes = open_storage(book, Delete) if type(book.event) is Flushed else []
            expected = [one for one in before if one not in self._left and one not in deletes]
        return self._count(book, expected)

    def _count(self, book: Book, expected: list[FlightId]) -> None:
        found = abandoned(book.outcomes)
        if found != sorted(expected):
            self.fail(
                f"expected flights {sorted(expected)} to be abandoned, found {found}",
                *(flight(one) for one in (*expected, *found)),
            )
        self._left.update(found)
        self._left.intersection_update(book.tickets.open)


def _reasons(book: Book, event: Event) -> tuple[str, ...]:
    """How a prefetch may have ended with this reply."""
    if type(event) is FetchDone:
        action = book.answered.action if book.answered is not None else None
        return ("short",) if event.pages < getattr(action, "pages", 0) else ("",)
    if type(event) is not LookupDone:
        return ()
    least = max(1, book.config.prefetch_threshold_tokens)
    if event.pages * book.page_size < least:
        return ("too_short",) if event.pages else ("miss",)
    return ("", "miss", "no_host_pages")


def check() -> PrefetchWait:
    return PrefetchWait()
