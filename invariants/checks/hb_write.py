"""Writers come after everybody who used the page before."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Backup, Load, Prefill
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.story import flight, page
from invariants.tickets import written


class HappensBeforeWrite(Check):
    name = "HB-WRITE"
    sentence = "An action writes only pages that no unanswered action reads or writes."
    watches = (Load, Backup, Prefill)

    def issue(self, book: Book, item: Load | Backup | Prefill, view: CoreView) -> None:
        if type(item) is Prefill:
            tier, target = Tier.DEVICE, written(item, book.page_size)
        else:
            tier = Tier.DEVICE if type(item) is Load else Tier.HOST
            target = book.moving[1]
        busy = book.pages[tier].busy[target]
        if np.count_nonzero(busy):
            at = int(target[int((busy > 0).argmax())])
            others = [
                ticket.id
                for ticket in book.tickets.open.values()
                if any(at in used for used in (ticket.source, ticket.target, ticket.wide))
            ]
            self.fail(
                f"flight {item.flight} writes {tier.name.lower()} page {at}: expected 0 unanswered "
                f"actions on it, found {int(busy.max())} (flights {others})",
                page(tier, at),
                flight(item.flight),
            )


def check() -> HappensBeforeWrite:
    return HappensBeforeWrite()
