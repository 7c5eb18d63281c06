"""No more is evicted than was missing."""

from __future__ import annotations

from hicache.core.actions import Backup, Evicted, Granted, Refused, Seated
from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book


class EvictMinimum(Check):
    name = "EVICT-MIN"
    sentence = (
        "An operation evicts at most the pages that it took beyond those free, or was asked to "
        "free; nothing for a match or a refusal other than draining."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        self._operation = -1

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if self._operation == book.operations:
            return
        self._operation = book.operations
        dropped = False
        gone = [0, 0]
        retiring = [0, 0]
        for other in book.outcomes:
            if type(other) is Evicted:
                gone[other.tier] += len(other.pages)
                retiring[other.tier] += int((book.pages[other.tier].busy[other.pages] > 0).sum())
                dropped |= other.tier == Tier.DEVICE and not other.demoted
        wanted = self._wanted(book)
        for tier in (Tier.DEVICE, Tier.HOST):
            if tier == Tier.HOST and dropped:
                continue  # pages on host below a dropped node go with it
            if gone[tier] - retiring[tier] > wanted[tier]:
                self.fail(
                    f"{tier.name.lower()}: evicted {gone[tier]} pages, {retiring[tier]} of them "
                    f"retiring; free before {book.free_before[tier]}, missing {wanted[tier]}"
                )

    def _wanted(self, book: Book) -> list[int]:
        """Pages that were missing on each tier, by what the operation took or was refused."""
        event, needed = book.event, [0, 0]
        if type(event) is EvictWanted:
            needed[event.tier] = event.pages + book.free_before[event.tier]
        for item in book.outcomes:
            if type(item) is Seated:
                seat = book.seats.by_id.get(item.request)
                needed[0] += len(seat.table) - item.device_pages if seat is not None else 0
            elif type(item) is Granted:
                needed[0] += sum(len(claimed) for claimed, _ in book.device.claimed)
            elif type(item) is Refused and item.reason == "draining":
                needed[0] += item.needed
            elif type(item) is Backup:
                needed[1] += sum(len(copy.target) for copy in item.copies)
        return [max(0, needed[tier] - book.free_before[tier]) for tier in (0, 1)]


def check() -> EvictMinimum:
    return EvictMinimum()
