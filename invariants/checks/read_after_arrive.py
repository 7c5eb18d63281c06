"""Readers come after the bytes."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Backup, Load, Prefill
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.story import flight, page


class ReadAfterArrive(Check):
    name = "READ-AFTER-ARRIVE"
    sentence = (
        "A page that an unanswered action writes is read by nothing but a prefill that waits for "
        "that very action."
    )
    watches = (Load, Backup, Prefill)

    def issue(self, book: Book, item: Load | Backup | Prefill, view: CoreView) -> None:
        after: tuple[int, ...] = ()
        if type(item) is Prefill:
            tier, after = Tier.DEVICE, item.after
            source = item.table[: -(-item.start // book.page_size)]
        else:
            tier = Tier.HOST if type(item) is Load else Tier.DEVICE
            source = book.moving[0]
        writers = book.pages[tier].writer[source]
        if not np.count_nonzero(writers):
            return
        awaited = writers > 0
        for known in after:
            awaited &= writers != known
        if awaited.any():
            at = int(awaited.argmax())
            self.fail(
                f"flight {item.flight} reads {tier.name.lower()} page {source[at]} after "
                f"{list(after)}: expected also after flight {writers[at]}, which writes it",
                page(tier, int(source[at])),
                flight(int(writers[at])),
            )


def check() -> ReadAfterArrive:
    return ReadAfterArrive()
