"""A page is read only after its bytes have arrived."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from hicache.core.actions import Backup, Fetch, Load, Prefill, Store
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import PageBook
from invariants.books.story import flight, page

_Reading: TypeAlias = Load | Backup | Prefill | Fetch | Store


class ReadAfterArrive(Check):
    name = "READ-AFTER-ARRIVE"
    sentence = (
        "A page that an unanswered action writes is read only by a prefill that waits for that "
        "action."
    )
    watches = (Load, Backup, Prefill, Fetch, Store)

    def issue(self, book: Book, item: _Reading, view: CoreView) -> None:
        after = item.after if type(item) is Prefill else ()
        for use in book.uses:
            self._arrived(item, after, book.pool(Tier.DEVICE, use.at), use.reads)
        tier = Tier.DEVICE if type(item) is Backup else Tier.HOST
        for move in book.moves:
            self._arrived(item, after, book.pool(tier, move.at), move.source)

    def _arrived(
        self,
        item: _Reading,
        after: tuple[int, ...],
        pages: PageBook,
        source: Pages,
    ) -> None:
        writers = pages.writer[source]
        if not np.count_nonzero(writers):
            return
        awaited = writers > 0
        for known in after:
            awaited &= writers != known
        if awaited.any():
            at = int(awaited.argmax())
            self.fail(
                f"flight {item.flight} reads {pages.where} page {source[at]} after "
                f"{list(after)}: expected also after flight {writers[at]}, which writes it",
                page(pages, int(source[at])),
                flight(int(writers[at])),
            )


def check() -> ReadAfterArrive:
    return ReadAfterArrive()
