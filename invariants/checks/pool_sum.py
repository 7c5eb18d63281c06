"""The counts of a pool's pages add up to its capacity."""

from __future__ import annotations

from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book

_RETIRING = int(PageState.RETIRING)


class PoolSum(Check):
    name = "POOL-SUM"
    sentence = (
        "free + evictable + protected + request-held + in-flight + retiring == capacity, per pool."
    )

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.pages:
            pool = view.pool(pages.tier, pages.component)
            _, nodes, requests, flights = pages.held
            retiring = pool.counts[_RETIRING]
            total = pool.free + nodes + requests + flights + retiring
            if (
                total == pages.capacity
                and pool.free == pages.free
                and pool.protected == pages.protected
                and pool.counts == [pool.free, requests, nodes, flights, len(pages.retiring)]
            ):
                continue
            self.fail(
                f"{pages.where}: free {pool.free} + evictable "
                f"{nodes - pages.protected} + protected {pages.protected} + request-held "
                f"{requests} + in-flight {flights} + retiring {retiring} = {total}, capacity "
                f"{pages.capacity}; the ledger counts {pool.counts} with "
                f"{pool.protected} protected",
                story.pool(pages),
            )


def check() -> PoolSum:
    return PoolSum()
