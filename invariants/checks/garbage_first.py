"""Garbage is evicted before copies that a live boundary requires."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.events import TimePassed
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import DEVICE, DUPLICATE, HOST
from invariants.books.story import node, page
from invariants.checks._victims import book_of, decided_by, decided_later, passed_over, sheltered


class GarbageFirst(Check):
    name = "GARBAGE-FIRST"
    sentence = (
        "No copy that serves a live boundary is evicted while an unlocked copy that serves none "
        "is in the same pool."
    )
    of_several = True
    watches = (Evicted,)

    def __init__(self) -> None:
        super().__init__()
        self._operation = -1
        self._earlier: list[int] = []  # the nodes that this operation evicted from

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        """Checks the first victim of each operation; it may have turned later ones into garbage."""
        if type(book.event) is TimePassed or not len(item.pages):
            return
        pages = book_of(book, item)
        giver = int(pages.giver[item.pages[0]])
        if self._operation != book.operations:
            self._operation, self._earlier = book.operations, []
        elif giver in self._earlier:
            return  # it went with the same node
        index, reason = (
            decided_later(book, item, self._earlier) if self._earlier else decided_by(book, item)
        )
        self._earlier.append(giver)
        served = book.nodes.parted.get((giver, index))
        if reason and pages.served[item.pages[0]]:
            self.excuse(reason)
        if reason or served is None or not served[0]:
            return
        spared = sheltered(book, index)
        for queue in (DEVICE,) if item.tier == Tier.DEVICE else (HOST, DUPLICATE):
            colder = passed_over(self, book, index, queue, spared, lambda rank: not rank[0])
            if colder is not None:
                self.fail(
                    f"{pages.where} page {item.pages[0]}, which served a live boundary, went while "
                    f"node {colder.id} has copies that serve none (the nearest is "
                    f"{colder.live_distance} pages below its end)",
                    page(pages, int(item.pages[0])),
                    node(colder.id),
                )


def check() -> GarbageFirst:
    return GarbageFirst()
