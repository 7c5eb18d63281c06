"""Actions for storage concern host pages only."""

from __future__ import annotations

from hicache.core.actions import Refused
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import flight, request
from invariants.books.tickets import OF_STORAGE

_REASONS = ("fetching", "detaching")


class NeverDevice(Check):
    name = "NEVER-DEVICE"
    sentence = (
        "An action for storage locks no device page, has none on loan and lets no eviction wait, "
        "and no refusal for lack of pages names it: nothing on device waits for storage."
    )
    watches = (Refused,)

    def see(self, book: Book, item: Refused, view: CoreView) -> None:
        ticket = book.tickets.open.get(item.after)
        stored = ticket is not None and type(ticket.action) in OF_STORAGE
        if stored != (item.reason in _REASONS):
            self.fail(
                f"request {item.request}, refused ({item.reason}) until flight {item.after} is "
                f"answered: expected {'an' if item.reason in _REASONS else 'no'} action for "
                "storage",
                request(item.request),
            )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history:
            return
        for number in view.storage_flights:
            one = view.flights[number]
            entries = () if one.receipt is None else one.receipt.locked
            locks = sum(tier == Tier.DEVICE for held in entries for _, tier in held)
            lent = sum(map(len, one.lent))
            if locks or lent or one.evicts or any(one.frees) or any(one.gives_up):
                self.fail(
                    f"flight {number}: expected nothing on device, found {locks} locks, {lent} "
                    f"pages on loan, and that an eviction waits: {one.evicts}",
                    flight(number),
                )


def check() -> NeverDevice:
    return NeverDevice()
