"""Victims follow the order that the eviction policy declares, by the books' clock and counts."""

from __future__ import annotations

from hicache.core.actions import Evicted
from hicache.core.events import TimePassed
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import DEVICE, DUPLICATE, HOST, Key, Rank
from invariants.books.orders import key_of_facts
from invariants.books.pages import PageBook
from invariants.books.story import node, page
from invariants.checks._victims import (
    book_of,
    decided_by,
    decided_later,
    demoted,
    passed_over,
    sheltered,
)
from invariants.reasons import Reason


class OrderReference(Check):
    name = "ORDER-REF"
    sentence = (
        "Among the copies that serve a live boundary, and among the others, no copy that stays "
        "evictable in a pool comes, in the order that the eviction policy declares, before one "
        "that was evicted there; a host copy of a page on device is evicted only when host has "
        "nothing else of its kind."
    )
    watches = (Evicted,)

    def __init__(self) -> None:
        super().__init__()
        self._operation = -1
        self._earlier: list[int] = []  # the nodes that this operation evicted from

    def see(self, book: Book, item: Evicted, view: CoreView) -> None:
        if type(book.event) is TimePassed or not len(item.pages):
            return
        pages = book_of(book, item)
        giver, width = int(pages.giver[item.pages[0]]), book.width
        if self._operation != book.operations:
            self._operation, self._earlier = book.operations, []
        elif width > 1 and giver in self._earlier:
            return  # it went with the same node
        first = not self._earlier or width == 1
        index, reason = (
            decided_by(book, item) if first else decided_later(book, item, self._earlier)
        )
        self._earlier.append(giver)
        if reason:
            self.excuse(reason)
            return
        rank = book.nodes.parted.get((giver, index))
        if rank is None:
            self.excuse(Reason.UNCERTAIN_POOL)
            return
        served, key = rank[0], _key_of_piece(book, item, giver, index) or rank[1]
        if item.tier == Tier.DEVICE:
            self._compare(book, item, index, DEVICE, served, key)
        elif any(
            type(other) is Evicted and other.tier == Tier.DEVICE and not demoted(book, other)
            for other in book.outcomes
        ):
            self.excuse(Reason.DELETED_PREFIX)
        elif _still_on_device(book, item, pages):
            self._compare(book, item, index, DUPLICATE, served, key)
            self._compare(book, item, index, HOST, served, None)
        else:
            self._compare(book, item, index, HOST, served, key)

    def _compare(
        self,
        book: Book,
        item: Evicted,
        index: int,
        queue: int,
        served: bool,
        key: Key | None,
    ) -> None:
        """Compares a victim with the first candidates of a queue. key: key of the victim, or None
        if the whole queue must be evicted before it.
        """

        def wrong(rank: Rank) -> bool | None:
            if rank[0] != served:  # GARBAGE-FIRST checks the order between garbage and the rest
                return None if served else False
            return key is None or rank[1] < key

        pages = book_of(book, item)
        other = passed_over(self, book, index, queue, sheltered(book, index), wrong)
        rank = other.rank[index] if other is not None else None
        if other is not None and rank is not None:
            also = ", also on device" if key is None else f", {_told(book, key)}"
            self.fail(
                f"{pages.where} page {item.pages[0]}{also}, went; expected node {other.id} to go "
                f"before, {_told(book, rank[1])}",
                page(pages, int(item.pages[0])),
                node(other.id),
            )


def _key_of_piece(book: Book, item: Evicted, giver: int, index: int) -> Key | None:
    """The key that a victim had where the policy compares costs. A match may have split its node in
    this operation, and an upper half costs less than the node did. None elsewhere."""
    facts, key_of = book.nodes.parted_facts.get((giver, index)), key_of_facts(book.eviction)
    pages, last = book_of(book, item), int(item.pages[-1])
    mirror, cost = book.nodes.ages.evicted(book.nodes, pages, last)
    if facts is None or key_of is None or mirror is None:
        return None
    return key_of(facts._replace(cost=cost[index]))


def _told(book: Book, key: Key) -> str:
    """Describes a key for a message."""
    terms = getattr(book.eviction, "order", ())
    if len(terms) != len(key) or hasattr(book.eviction, "reference"):
        return f"its key {key}"
    named = (f"{term.fact} {value}" for term, value in zip(terms, key, strict=True))
    return ", ".join(named).replace("_", " ")


def _still_on_device(book: Book, item: Evicted, pages: PageBook) -> bool:
    """Whether the evicted host pages were copies of pages on device."""
    tags = pages.content[item.pages[:1]]
    return bool(len(tags)) and int(tags[0]) in book.nodes.resident[pages.component]


def check() -> OrderReference:
    return OrderReference()
