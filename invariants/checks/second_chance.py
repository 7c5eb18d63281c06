"""The two queues of S3-FIFO, and its ghost."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import Standing
from invariants.books.story import node as node_story
from invariants.books.story import page, pool


class SecondChanceQueues(Check):
    name = "SECOND-CHANCE"
    sentence = (
        "Under a policy with second chances and with full attention alone, each victim on device "
        "is the one that the two queues give: from small while it has its share of the pool's "
        "pages, else from main, the first copy that has used up its chances, while those before it "
        "go to the end of main; the core counts the same pages in small and in the ghost."
    )
    watches = (Evicted,)

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        chances = book.chances
        if chances is None or item.tier != Tier.DEVICE or not len(item.pages):
            return
        passed = chances.passed.get(int(item.pages[0]))
        if passed is None or passed.expected is None or passed.before is None:
            return
        self.fail(
            f"device page {item.pages[0]}, {_told(passed.victim)}, went; expected node "
            f"{passed.expected.id} to go before, {_told(passed.before)}",
            page(book.device, int(item.pages[0])),
            node_story(passed.expected.id),
        )

    def audit(self, book: Book, view: CoreView) -> None:
        chances = book.chances
        if chances is None:
            return
        if view.small_pages() != chances.small:
            self.fail(
                f"expected {chances.small} pages in the small queue, found {view.small_pages()}",
                pool(book.device),
            )
        # a call that was refused after the last operation has begun an event, too
        sizes = (len(chances.ghost), chances.ghost_next)
        if view.ghost_pages() not in sizes:
            self.fail(
                f"expected {sizes[0]} pages in the ghost, found {view.ghost_pages()}",
                pool(book.device),
            )


def _told(stands: Standing) -> str:
    queue = "main" if stands.main else "small"
    return f"in {queue} at place {stands.place} with {stands.chances} chances"


def check() -> SecondChanceQueues:
    return SecondChanceQueues()
