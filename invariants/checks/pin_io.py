"""Pages that an open action uses are not freed or reused."""

from __future__ import annotations

import numpy as np

from hicache.core.events import BackupDone, FetchDone, LoadDone, StoreDone
from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import flight, page


class PinIo(Check):
    name = "PIN-IO"
    sentence = (
        "A page that an unanswered action reads or writes is not free and not reissued before the "
        "reply, or before the reply of the pass that reads what was loaded."
    )
    watches = (LoadDone, BackupDone, FetchDone, StoreDone)

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.changed:
            used = pages.retired
            if not len(used):
                continue
            pool = view.pool(pages.tier, pages.component)
            free = pool.state[used] == PageState.FREE
            if np.count_nonzero(free):
                at = int(used[int(free.argmax())])
                self.fail(
                    f"{pages.where} page {at} is used by {pages.busy[at]} unanswered "
                    "actions: expected RETIRING, found FREE",
                    page(pages, at),
                )

    def issue(
        self, book: Book, item: LoadDone | BackupDone | FetchDone | StoreDone, view: CoreView
    ) -> None:
        ticket = book.tickets.open.get(item.flight)
        if ticket is None or ticket.landed:
            return
        for move, generations in zip(ticket.moves, ticket.generations, strict=True):
            for tier, used, before in zip(
                ticket.tiers, (move.source, move.target), generations, strict=True
            ):
                now = view.pool(tier, move.at).generation[used]
                if np.count_nonzero(now != before):
                    at = int((now != before).argmax())
                    pages = book.pool(tier, move.at)
                    self.fail(
                        f"{pages.where} page {used[at]} of flight {item.flight}: expected "
                        f"generation {before[at]} until the reply, found {now[at]}",
                        page(pages, int(used[at])),
                        flight(item.flight),
                    )


def check() -> PinIo:
    return PinIo()
