"""The two queues of S3-FIFO, and its ghost."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.eviction_policies.base import second_chance_of
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import node as node_story
from invariants.books.story import pool
from invariants.checks._victims import known


class SecondChanceQueues(Check):
    name = "SECOND-CHANCE"
    sentence = (
        "Under a policy with second chances, a copy of full attention that is evicted for room had "
        "used up its chances: out of the small queue it was visited less often than the policy "
        "asks for, out of main it had none left; the small queue counts its cached pages, and "
        "the ghost has at most as many pages as the policy allows."
    )
    watches = (Evicted,)

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        policy = second_chance_of(view.eviction)
        if policy is None or item.tier != Tier.DEVICE or book.width > 1 or book.wants.since >= 0:
            return
        mirror = known(book, int(book.device.giver[item.pages[0]]))
        if mirror is None or mirror.node is None:
            return
        marks = mirror.node.marks
        chances = marks.chances[0]
        never_left = mirror.visits[0] <= policy.most_chances and chances == mirror.visits[0]
        spared = marks.in_main[0] and chances
        if spared or (not marks.in_main[0] and chances >= policy.visits_to_main and never_left):
            queue = "main" if marks.in_main[0] else "small"
            self.fail(
                f"node {mirror.id} went out of {queue}, and has {chances} chances",
                node_story(mirror.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        policy = second_chance_of(view.eviction)
        if policy is None:
            return
        for pages in book.pages[: book.width]:
            index = pages.component
            expected = sum(
                len(held)
                for mirror in book.nodes.by_id.values()
                if (held := mirror.pages[index]) is not None
                and mirror.node is not None
                and not mirror.node.marks.in_main[index]
            )
            if view.small_pages(index) != expected:
                self.fail(
                    f"{pages.where}: expected {expected} pages in the small queue, found "
                    f"{view.small_pages(index)}",
                    pool(pages),
                )
            most = pages.capacity * policy.ghost_percent // 100
            if view.ghost_pages(index) > most:
                self.fail(
                    f"{pages.where}: expected at most {most} pages in the ghost, found "
                    f"{view.ghost_pages(index)}",
                    pool(pages),
                )


def check() -> SecondChanceQueues:
    return SecondChanceQueues()
