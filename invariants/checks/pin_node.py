"""Locked nodes stay in the tree with their locked pages."""

from __future__ import annotations

import numpy as np

from hicache.core.events import Flushed
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import NODE, PageBook
from invariants.books.story import node, page


class PinNode(Check):
    name = "PIN-NODE"
    sentence = "A locked node is not removed and does not lose its locked pages."

    def totals(self, book: Book, view: CoreView) -> None:
        for mirror in book.nodes.gone:
            record = mirror.node
            if record is not None and type(book.event) is not Flushed:
                held = [sum(map(len, record.locks[tier])) for tier in (0, 1)]
                if any(held):
                    self.fail(
                        f"node {mirror.id} left the tree with {held[0]} device and {held[1]} host "
                        "holders, expected 0 and 0",
                        node(mirror.id),
                    )
        for pages in book.changed:
            self._unlocked(pages, pages.freed)
            self._unlocked(pages, pages.retired)
            for claimed, code in pages.claimed:
                if code & 3 != NODE:
                    self._unlocked(pages, claimed)

    def _unlocked(self, pages: PageBook, lost: Pages) -> None:
        """Pages that no node owns any more must not be locked."""
        if not len(lost):
            return
        locks = pages.locks[lost]
        if np.count_nonzero(locks):
            at = int(lost[int(locks.argmax())])
            self.fail(
                f"{pages.where} page {at} left its node under {pages.locks[at]} locks, expected 0",
                page(pages, at),
            )


def check() -> PinNode:
    return PinNode()
