"""Host copies that a load leaves behind where it is to give them up."""

from __future__ import annotations

import numpy as np

from hicache.core.events import LoadDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import NODE
from invariants.books.story import flight
from invariants.reasons import Reason


class Exclusive(Check):
    name = "EXCLUSIVE"
    sentence = (
        "With an exclusive host, a page that a load brought is on device alone once the load has "
        "ended, unless another transfer locks its host copy."
    )
    watches = (LoadDone,)

    def __init__(self) -> None:
        super().__init__()
        self._forgotten = False  # the tree was flushed since the load began

    def issue(self, book: Book, item: LoadDone, view: CoreView) -> None:
        self._forgotten = book.tickets.was_flushed(item.flight)

    def see(self, book: Book, item: LoadDone, view: CoreView) -> None:
        ticket = book.answered
        if not item.ok or self._forgotten or ticket is None or not book.config.exchange_pages:
            return
        for move in ticket.moves:
            host = book.pool(Tier.HOST, move.at)
            left = move.source[host.owner[move.source] & 3 == NODE]
            for code in np.unique(host.owner[left]):
                mirror = book.nodes.by_id.get(int(code) >> 2)
                if mirror is None or mirror.pages[move.at] is None:
                    continue
                if mirror.locked[book.width + move.at]:
                    self.excuse(Reason.LOCKED_COPY)
                else:
                    self.fail(
                        f"node {mirror.id}: expected {host.name} on device alone, found it on both "
                        "tiers",
                        flight(ticket.id),
                    )


def check() -> Exclusive:
    return Exclusive()
