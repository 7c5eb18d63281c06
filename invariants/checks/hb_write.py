"""A page is written only when no open action uses it."""

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

_Writing: TypeAlias = Load | Backup | Prefill | Fetch | Store


class HappensBeforeWrite(Check):
    name = "HB-WRITE"
    sentence = "An action writes only pages that no unanswered action reads or writes."
    watches = (Load, Backup, Prefill, Fetch, Store)

    def issue(self, book: Book, item: _Writing, view: CoreView) -> None:
        for use in book.uses:
            self._nobody_else(book, item, book.pool(Tier.DEVICE, use.at), use.writes)
        tier = Tier.DEVICE if type(item) is Load else Tier.HOST
        for move in book.moves:
            self._nobody_else(book, item, book.pool(tier, move.at), move.target)

    def _nobody_else(self, book: Book, item: _Writing, pages: PageBook, target: Pages) -> None:
        busy = pages.busy[target]
        if np.count_nonzero(busy):
            at = int(target[int((busy > 0).argmax())])
            others = [
                ticket.id
                for ticket in book.tickets.open.values()
                if any(move.at == pages.component and _in(at, move[1:3]) for move in ticket.moves)
                or any(use.at == pages.component and _in(at, use[1:]) for use in ticket.uses)
            ]
            self.fail(
                f"flight {item.flight} writes {pages.where} page {at}: expected 0 unanswered "
                f"actions on it, found {int(busy.max())} (flights {others})",
                page(pages, at),
                flight(item.flight),
            )


def _in(page: int, arrays: tuple[Pages, ...]) -> bool:
    return any(page in pages for pages in arrays)


def check() -> HappensBeforeWrite:
    return HappensBeforeWrite()
