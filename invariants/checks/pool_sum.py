"""The sum over a pool's pages."""

from __future__ import annotations

from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.book import Book
from invariants.pages import FLIGHT, NODE, REQUEST


class PoolSum(Check):
    name = "POOL-SUM"
    sentence = (
        "free + evictable + protected + request-held + in-flight + retiring == capacity, per pool."
    )

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.pages:
            pool = view.pool(pages.tier)
            counts, held = pool.counts, pages.held
            retiring = counts[PageState.RETIRING]
            evictable = held[NODE] - pages.protected
            total = (
                pool.free + evictable + pages.protected + held[REQUEST] + held[FLIGHT] + retiring
            )
            if (
                total != pages.capacity
                or pool.protected != pages.protected
                or (counts != [pool.free, held[REQUEST], held[NODE], held[FLIGHT], retiring])
            ):
                self.fail(
                    f"{pages.tier.name.lower()}: free {pool.free} + evictable {evictable} + "
                    f"protected {pages.protected} + request-held {held[REQUEST]} + in-flight "
                    f"{held[FLIGHT]} + retiring {retiring} = {total}, capacity {pages.capacity}; "
                    f"the ledger counts {counts} with {pool.protected} protected"
                )


def check() -> PoolSum:
    return PoolSum()
