"""Pages of transfers and forward passes in flight stay put."""

from __future__ import annotations

from hicache.core.events import BackupDone, LoadDone
from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.story import flight, page


class PinIo(Check):
    name = "PIN-IO"
    sentence = (
        "No page that an unanswered action reads or writes is free or reissued before its reply."
    )
    watches = (LoadDone, BackupDone)

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.pages:
            gone = pages.nobodys()
            if not len(gone):
                continue
            used = gone[pages.busy[gone] > 0]
            pool = view.pool(pages.tier)
            if len(used) and (pool.state[used] != PageState.RETIRING).any():
                at = int(used[int((pool.state[used] != PageState.RETIRING).argmax())])
                self.fail(
                    f"{pages.tier.name.lower()} page {at} is used by {pages.busy[at]} unanswered "
                    f"actions: expected RETIRING, found {PageState(int(pool.state[at])).name}",
                    page(pages.tier, at),
                )

    def issue(self, book: Book, item: LoadDone | BackupDone, view: CoreView) -> None:
        ticket = book.tickets.open.get(item.flight)
        if ticket is None or ticket.landed:
            return
        for tier, used, before in zip(
            ticket.tiers, (ticket.source, ticket.target), ticket.generations, strict=True
        ):
            now = view.pool(tier).generation[used]
            if (now != before).any():
                at = int((now != before).argmax())
                self.fail(
                    f"{tier.name.lower()} page {used[at]} of flight {item.flight}: expected "
                    f"generation {before[at]} until the reply, found {now[at]}",
                    page(tier, int(used[at])),
                    flight(item.flight),
                )


def check() -> PinIo:
    return PinIo()
