"""Refusals and evictions against what could be had."""

from __future__ import annotations

from hicache.core.actions import Backup, Evicted, Refused
from hicache.core.events import AdmitWanted, EvictWanted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.pages import NODE
from invariants.books.shadow import DEVICE
from invariants.books.story import pool, request


class LiveEvict(Check):
    name = "LIVE-EVICT"
    sentence = (
        "If there are enough unlocked evictable pages, taking them succeeds: a refusal for lack "
        "of pages is true, and an eviction frees what it can, in order."
    )
    kind = LIVENESS
    watches = (Refused, EvictWanted)

    def see(self, book: Book, item: Refused | EvictWanted, view: CoreView) -> None:
        if type(item) is EvictWanted:
            self._evicted(book, item, view)
        elif type(item) is Refused and item.reason != "running":
            self._refused(book, item, view)

    def _refused(self, book: Book, item: Refused, view: CoreView) -> None:
        index = book.index_of(item.component)
        device = book.pages[index]
        capacity, free = device.capacity, view.pool(Tier.DEVICE, index).free
        if item.reason == "too_large":
            if item.needed <= capacity:
                self.fail(
                    f"too large: {item.needed} {item.component} pages needed of {capacity}",
                    request(item.request),
                )
            return
        if item.reason == "arriving":
            if not any(
                not t.landed and t.tiers[0] == Tier.HOST and t.moves
                for t in book.tickets.open.values()
            ):
                self.fail(
                    "refused as arriving: expected an unanswered load, found none",
                    request(item.request),
                )
            return
        waiting = any(
            type(ticket.action) is Backup or ticket.request < 0 or ticket.landed
            for ticket in book.tickets.open.values()
        )
        spare = device.held[NODE] - device.protected - self._own_path(book, item, index)
        available = free + spare
        if available >= item.needed and not (item.reason == "writing_back" and waiting):
            self.fail(
                f"refused ({item.reason}): needed {item.needed} {item.component} pages, free "
                f"{free} + evictable {spare} = {available}",
                request(item.request),
            )
        if (item.reason == "writing_back") != waiting:
            self.fail(
                f"refused ({item.reason}): {'some' if waiting else 'no'} pages come back by "
                "themselves",
                request(item.request),
            )

    def _waits_for_a_parent(self, book: Book) -> bool:
        """Whether some page that is locked now, as the path of what drains is, goes before all
        that could be evicted: it comes first, once the drain is over."""
        coldest = book.nodes.coldest(0, DEVICE, ())
        first = coldest.rank[0] if coldest is not None else None
        return first is not None and any(
            shadow.locked[0]
            and shadow.pages[0] is not None
            and rank is not None
            and (rank[1] < first[1] or book.nodes.declared.key is None)
            for shadow in book.nodes.by_id.values()
            for rank in shadow.rank[:1]
        )

    def _own_path(self, book: Book, item: Refused, index: int) -> int:
        """Unlocked pages that the refused request would have reused from the device."""
        seat = book.seats.by_id.get(item.request)
        if seat is None or type(book.event) is not AdmitWanted:
            return 0
        unlocked, depth = 0, seat.expected.device
        for tag in seat.known[max(0, depth - book.kinds[index].need) : depth]:
            shadow = book.nodes.at.get(tag)
            held = shadow.pages[index] if shadow is not None else None
            if shadow is not None and held is not None and not shadow.locked[index]:
                unlocked += len(held)
        return unlocked

    def _evicted(self, book: Book, item: EvictWanted, view: CoreView) -> None:
        tier, index = Tier(item.tier), book.index_of(item.component)
        gone = sum(
            len(other.pages)
            for other in book.outcomes
            if type(other) is Evicted and (other.tier, other.component) == (tier, item.component)
        )
        already = book.writing_back_before[index] if tier == Tier.DEVICE else 0
        drained = view.writing_back(index) - already if tier == Tier.DEVICE else 0
        slot = tier * book.width + index
        goal = min(item.pages - already, book.evictable_before[slot])
        if drained:
            goal = min(goal, 1)  # what drains locks its path: the rest comes after the reply
        if already and self._waits_for_a_parent(book):
            goal = min(goal, 0)
        if gone + drained < goal:
            self.fail(
                f"{book.pages[slot].where}: asked for {item.pages}, evictable "
                f"{book.evictable_before[slot]}, draining before {already}: expected {goal}, "
                f"evicted {gone} and draining now {drained} more",
                pool(book.pages[slot]),
            )


def check() -> LiveEvict:
    return LiveEvict()
