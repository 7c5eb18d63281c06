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

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if item.tier == Tier.DEVICE:
            self._compare(book, item, DEVICE, _sheltered(book, book.event))
            return
        if any(
            type(other) is Evicted and other.tier == Tier.DEVICE and not other.demoted
            for other in book.outcomes
        ):
            return  # dropped with its prefix, not chosen
        demoted = _sheltered(book, book.event)
        for other in book.nodes.dirty.values():
            if other.candidate >> HOST & 1:
                demoted.add(other.id)
        self._compare(book, item, HOST, demoted)
        if item.tier == Tier.HOST and _still_on_device(book, item):
            self._compare(book, item, DUPLICATE, demoted)

    def _compare(self, book: Book, item: Evicted, queue: int, but: set[int]) -> None:
        colder = book.nodes.coldest(queue, but)
        if colder is None:
            return
        worse = queue == HOST and _still_on_device(book, item)
        if worse or colder.use < item.last_use:
            self.fail(
                f"{item.tier.name.lower()} page {item.pages[0] if len(item.pages) else '-'} of a "
                f"node last used at {item.last_use} went, node {colder.id} last used at "
                f"{colder.use} stays",
                page(item.tier, int(item.pages[0]) if len(item.pages) else -1),
                node(colder.id),
            )


def _still_on_device(book: Book, item: Evicted) -> bool:
    """Whether the evicted host pages were copies of pages that are on device."""
    tags = book.host.content[item.pages[:1]]
    return bool(len(tags)) and int(tags[0]) in book.nodes.resident[0]


def _sheltered(book: Book, event: Event) -> set[int]:
    """Nodes on the path of a request that was being admitted: locked while the victims were
    chosen, even where the admission was refused in the end."""
    if type(event) is not Admitted:
        return set()
    seat = book.seats.by_id.get(event.request)
    found: set[int] = set()
    for tag in seat.known if seat is not None else ():
        shadow = book.nodes.at.get(tag)
        if shadow is not None:
            found.add(shadow.id)
    return found


def check() -> OrderReference:
    return OrderReference()
