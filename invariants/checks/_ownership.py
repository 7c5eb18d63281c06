"""Shared code of OWN-D and OWN-H, which differ only in the tier."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hicache.core.ledger import Pool
from hicache.core.types import PageState, Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import STATE_OF, PageBook, all_are, name_of
from invariants.books.story import page

_FREE, _RETIRING = int(PageState.FREE), int(PageState.RETIRING)


class Ownership(Check):
    tier: ClassVar[Tier]

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.changed:
            if pages.tier == self.tier:
                self._changed(pages, view.pool(self.tier, pages.component))

    def _changed(self, pages: PageBook, pool: Pool) -> None:
        where = pages.where
        if pages.clashes:
            clash = pages.clashes[0]
            self.fail(
                f"{where} page {clash.page}: expected {name_of(clash.expected)}, "
                f"found {name_of(clash.found)}",
                page(pages, clash.page),
            )
        for claimed, code in pages.claimed:
            state, states, owners = STATE_OF[code & 3], pool.state[claimed], pool.owner[claimed]
            if not all_are(states, state) or not all_are(owners, code >> 2):
                wrong = (states != state) | (owners != code >> 2)
                at = int(claimed[int(wrong.argmax())])
                self.fail(
                    f"{where} page {at} of {name_of(code)}: expected "
                    f"{PageState(state).name} of {code >> 2}, found "
                    f"{PageState(int(pool.state[at])).name} of {pool.owner[at]}",
                    page(pages, at),
                )
        for gone, state in ((pages.freed, _FREE), (pages.retired, _RETIRING)):
            if not len(gone):
                continue
            states = pool.state[gone]
            if not all_are(states, state):
                at = int(gone[int((states != state).argmax())])
                if state == _FREE or pool.state[at] != _FREE:
                    self.fail(  # PIN-IO reports pages that are free but still in use
                        f"{where} page {at}, held by nobody: expected {PageState(state).name}, "
                        f"found {PageState(int(pool.state[at])).name}",
                        page(pages, at),
                    )

    def audit(self, book: Book, view: CoreView) -> None:
        for pages in book.pages:
            if pages.tier == self.tier:
                self._all(pages, view.pool(self.tier, pages.component))

    def _all(self, pages: PageBook, pool: Pool) -> None:
        unowned = pages.owner == 0
        free = unowned & (pages.busy == 0)
        listed = pool.free_pages()
        wrong = free != (pool.state == PageState.FREE)
        if wrong.any() or len(listed) != int(free.sum()) or not free[listed].all():
            at = int(wrong.argmax())
            self.fail(
                f"{pages.where} pages free by the books {int(free.sum())}, on the free "
                f"list {len(np.unique(listed))} of {len(listed)}; first difference at page {at}",
                page(pages, at),
            )
