"""Victims against a reference LRU with a clock of its own."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.events import Admitted, Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.shadow import DEVICE, DUPLICATE, HOST
from invariants.story import node, page


class OrderReference(Check):
    name = "ORDER-REF"
    sentence = (
        "Nothing that stays evictable on a tier was used before anything that was evicted there; "
        "a host copy of what is on device goes only when nothing else is left on host."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        self._operation = -1
        self._sheltered: set[int] = set()

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if not len(item.pages):
            return
        if self._operation != book.operations:
            self._operation = book.operations
            self._sheltered = _sheltered(book, book.event)
        use = int(book.pages[item.tier].last_use[item.pages[0]])
        if item.tier == Tier.DEVICE:
            self._compare(book, item, use, DEVICE)
        elif not any(
            type(other) is Evicted and other.tier == Tier.DEVICE and not other.demoted
            for other in book.outcomes
        ):  # else perhaps dropped with its prefix, not chosen
            if _still_on_device(book, item):
                self._compare(book, item, use, DUPLICATE)
                use = -1  # anything on host only should have gone first
            self._compare(book, item, use, HOST)

    def _compare(self, book: Book, item: Evicted, use: int, queue: int) -> None:
        colder = book.nodes.coldest(queue, self._sheltered)
        if colder is not None and (use < 0 or colder.use < use):
            self.fail(
                f"{item.tier.name.lower()} page {item.pages[0]}, last used at "
                f"{'any time, also on device' if use < 0 else use}, went; expected node "
                f"{colder.id} to go before, last used at {colder.use}",
                page(item.tier, int(item.pages[0])),
                node(colder.id),
            )


def _still_on_device(book: Book, item: Evicted) -> bool:
    """Whether the evicted host pages were copies of pages that are on device."""
    tags = book.host.content[item.pages[:1]]
    return bool(len(tags)) and int(tags[0]) in book.nodes.resident[0]


def _sheltered(book: Book, event: Event) -> set[int]:
    """Nodes that may have been no candidates while the victims were chosen: those that came to be
    on host only in this operation, and those on the path of a request being admitted, which were
    locked even where the admission was refused in the end."""
    found = {shadow.id for shadow in book.nodes.dirty.values() if shadow.candidate >> HOST & 1}
    if type(event) is not Admitted:
        return found
    seat = book.seats.by_id.get(event.request)
    for tag in seat.known if seat is not None else ():
        shadow = book.nodes.at.get(tag)
        if shadow is not None:
            found.add(shadow.id)
    return found


def check() -> OrderReference:
    return OrderReference()
