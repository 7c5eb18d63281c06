"""Protected nodes stay in the tree, with the pages that are protected."""

from __future__ import annotations

from hicache.core.events import Flushed
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.pages import NODE
from invariants.story import node, page


class PinNode(Check):
    name = "PIN-NODE"
    sentence = "A node that somebody holds is neither unlinked nor stripped of the pages held."

    def totals(self, book: Book, view: CoreView) -> None:
        for shadow in book.nodes.gone:
            record = shadow.node
            if record is not None and type(book.event) is not Flushed:
                held = [len(record.holders[tier][0]) for tier in (0, 1)]
                if any(held):
                    self.fail(
                        f"node {shadow.id} left the tree with {held[0]} device and {held[1]} host "
                        "holders, expected 0 and 0",
                        node(shadow.id),
                    )
        for pages in book.pages:
            if not pages.released:
                continue
            for released in pages.released:
                lost = released[(pages.locks[released] > 0) & (pages.owner[released] & 3 != NODE)]
                if len(lost):
                    self.fail(
                        f"{pages.tier.name.lower()} page {lost[0]} left its node under "
                        f"{pages.locks[lost[0]]} locks, expected 0",
                        page(pages.tier, int(lost[0])),
                    )


def check() -> PinNode:
    return PinNode()
