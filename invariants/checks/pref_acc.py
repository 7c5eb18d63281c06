"""Tokens that are being prefetched are counted."""

from __future__ import annotations

from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import flight


class PrefetchAccount(Check):
    name = "PREF-ACC"
    sentence = (
        "The tokens that are being prefetched are those of the lookups and fetches in flight, "
        "never more than the budget, and none at quiescence, when no request waits for a prefetch "
        "either."
    )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history:
            return
        expected, found = book.storage.tokens(book.page_size), view.prefetching_tokens
        config = book.config
        budget = config.prefetch_budget_tokens or book.host.capacity * book.page_size
        if expected != found or found > budget:
            self.fail(
                f"tokens that are being prefetched: expected {expected}, at most {budget}, found "
                f"{found}",
                *(flight(number) for number in book.storage.prefetches),
            )

    def still(self, book: Book, view: CoreView) -> None:
        waiting = [one.id for one in view.requests.values() if one.prefetch]
        if view.prefetching_tokens or waiting:
            self.fail(
                f"expected no prefetch at quiescence, found {view.prefetching_tokens} tokens, and "
                f"requests {waiting} that wait"
            )


def check() -> PrefetchAccount:
    return PrefetchAccount()
