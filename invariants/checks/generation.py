"""A freed page gets a new generation, so that stale references can be detected."""

from __future__ import annotations

import numpy as np

from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import page


class Generation(Check):
    name = "GENERATION"
    sentence = "A page that becomes free gets a new generation, and no generation ever decreases."

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history:
            return
        for pages in book.changed:
            free = pages.freed
            if not len(free):
                continue
            now = view.pool(pages.tier, pages.component).generation
            stuck = now[free] <= pages.generation[free]
            if (
                np.count_nonzero(stuck)
                and (view.pool(pages.tier, pages.component).state[free] == PageState.FREE).all()
            ):
                at = int(free[int(stuck.argmax())])
                self.fail(
                    f"{pages.where} page {at} became free: expected a generation above "
                    f"{pages.generation[at]}, found {now[at]}",
                    page(pages, at),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        for pages in book.pages:
            now = view.pool(pages.tier, pages.component).generation
            if (now < pages.generation).any():
                at = int((now < pages.generation).argmax())
                self.fail(
                    f"{pages.where} page {at}: generation "
                    f"{pages.generation[at]} before, {now[at]} now",
                    page(pages, at),
                )


def check() -> Generation:
    return Generation()
