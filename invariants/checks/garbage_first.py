"""Garbage is evicted before copies that a live boundary requires."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import DEVICE, DUPLICATE, HOST
from invariants.books.story import node, page
from invariants.checks._victims import book_of, chosen, sheltered


class GarbageFirst(Check):
    name = "GARBAGE-FIRST"
    sentence = (
        "No copy that serves a live boundary is evicted while an unlocked copy that serves none "
        "is in the same pool."
    )
    of_several = True
    watches = (Evicted,)

    def __init__(self) -> None:
        self._operation = -1

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        """Checks the first victim of each operation; it may have turned later ones into garbage."""
        if self._operation == book.operations or not len(item.pages):
            return
        self._operation = book.operations
        pages = book_of(book, item)
        if not pages.served[item.pages[0]] or not chosen(book, pages, item):
            return
        spared = sheltered(book)
        for queue in (DEVICE,) if item.tier == Tier.DEVICE else (HOST, DUPLICATE):
            colder = book.nodes.coldest(pages.component, queue, spared)
            rank = colder.rank[pages.component] if colder is not None else None
            if colder is not None and rank is not None and not rank[0]:
                near = colder.node.live_distance if colder.node is not None else -1
                self.fail(
                    f"{pages.where} page {item.pages[0]}, which served a live boundary, went while "
                    f"node {colder.id} has copies that serve none (the nearest is {near} pages "
                    f"below its end)",
                    page(pages, int(item.pages[0])),
                    node(colder.id),
                )


def check() -> GarbageFirst:
    return GarbageFirst()
