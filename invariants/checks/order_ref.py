"""Victims against a reference LRU with a clock of its own."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import PageBook
from invariants.books.shadow import DEVICE, DUPLICATE, HOST, SERVES
from invariants.books.story import node, page
from invariants.checks._victims import book_of, chosen, sheltered


class OrderReference(Check):
    name = "ORDER-REF"
    sentence = (
        "Among the copies that serve a live boundary, and among the others, no copy that stays "
        "evictable in a pool was used before one that was evicted there; a host copy of a page on "
        "device is evicted only when host has nothing else of its kind."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        self._operation = -1
        self._sheltered: set[int] = set()
        self._served = False  # whether the victim served a live boundary

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if not len(item.pages):
            return
        first = self._operation != book.operations
        if first:
            self._operation = book.operations
            self._sheltered = sheltered(book)
        elif book.width > 1:
            return  # what went first may have made garbage of others, or have taken them along
        pages = book_of(book, item)
        if not chosen(book, pages, item):
            return
        rank = int(pages.rank[item.pages[0]])
        self._served = rank >= SERVES
        if item.tier == Tier.DEVICE:
            self._compare(book, item, pages, rank, DEVICE)
        elif not any(
            type(other) is Evicted and other.tier == Tier.DEVICE and not other.demoted
            for other in book.outcomes
        ):  # else perhaps dropped with its prefix, not chosen
            if _still_on_device(book, item, pages):
                self._compare(book, item, pages, rank, DUPLICATE)
                rank = 2 * SERVES if rank >= SERVES else SERVES  # of a kind, host only goes first
            self._compare(book, item, pages, rank, HOST)

    def _compare(self, book: Book, item: Evicted, pages: PageBook, rank: int, queue: int) -> None:
        colder = book.nodes.coldest(pages.component, queue, self._sheltered)
        if colder is None or (colder.rank[pages.component] >= SERVES) != self._served:
            return  # that garbage goes before what serves is GARBAGE-FIRST's to say
        use = colder.use[pages.component]
        if colder.rank[pages.component] < rank:
            also = ", also on device" if rank in (SERVES, 2 * SERVES) else ""
            self.fail(
                f"{pages.where} page {item.pages[0]}{also}, last used at {item.last_use}, went; "
                f"expected node {colder.id} to go before, last used at {use}",
                page(pages, int(item.pages[0])),
                node(colder.id),
            )


def _still_on_device(book: Book, item: Evicted, pages: PageBook) -> bool:
    """Whether the evicted host pages were copies of pages that are on device."""
    tags = pages.content[item.pages[:1]]
    return bool(len(tags)) and int(tags[0]) in book.nodes.resident[pages.component]


def check() -> OrderReference:
    return OrderReference()
