"""A flush clears everything."""

from __future__ import annotations

from hicache.core.actions import Prefill, Refused
from hicache.core.events import Flushed
from hicache.core.types import PageState
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.pages import FLIGHT


class Reset(Check):
    name = "RESET"
    sentence = "After a flush the core is like a new one, except for pages that actions still use."
    watches = (Flushed,)

    def see(self, book: Book, item: Flushed, view: CoreView) -> None:
        if any(type(other) is Refused for other in book.outcomes):
            passes = any(type(one.action) is Prefill for one in book.tickets.open.values())
            if not book.requests.admitted and not passes:
                self.fail("a flush was refused although no request is admitted and no pass runs")
            return
        nodes = sum(1 for _ in view.nodes())
        queued = sum(
            len(view.queue_entries(queue, kind.at, garbage))
            for queue in range(3)
            for kind in book.kinds
            for garbage in (False, True)
        )
        writing_back = sum(view.writing_back(kind.at) for kind in book.kinds)
        if nodes or queued or writing_back or len(book.nodes.by_id) != 1:
            self.fail(
                f"expected no nodes, entries or pages being written back, found {nodes}, {queued} "
                f"and {writing_back}"
            )
        waiting = [one.id for one in view.requests.values() if one.prefetch]
        if waiting or view.store_queue or view.distrusted:
            self.fail(
                f"expected nothing to be fetched, stored or distrusted, found requests {waiting}, "
                f"{len(view.store_queue)} nodes and {len(view.distrusted)} pages"
            )
        for pages in book.pages:
            pool = view.pool(pages.tier, pages.component)
            used = int(((pages.busy > 0) & (pages.owner == 0)).sum())
            fresh = [pages.capacity - used - pages.held[FLIGHT], 0, 0, pages.held[FLIGHT], used]
            if pool.counts != fresh or pool.protected:
                self.fail(
                    f"{pages.where} pool: expected {fresh} pages "
                    f"{[state.name.lower() for state in PageState]} and 0 protected, found "
                    f"{pool.counts} and {pool.protected}",
                    story.pool(pages),
                )


def check() -> Reset:
    return Reset()
