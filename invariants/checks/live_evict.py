"""Refusals and evictions against what could be had."""

from __future__ import annotations

from hicache.core.actions import Backup, Evicted, Refused
from hicache.core.events import Admitted, EvictWanted
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.book import Book
from invariants.pages import NODE
from invariants.shadow import DEVICE
from invariants.story import request


class LiveEvict(Check):
    name = "LIVE-EVICT"
    sentence = (
        "If unlocked evictable pages suffice, taking them succeeds: a refusal for want of pages "
        "says the truth, and an eviction frees what it can, in order."
    )
    kind = LIVENESS
    watches = (Refused, EvictWanted)

    def see(self, book: Book, item: Refused | EvictWanted, view: CoreView) -> None:
        if type(item) is EvictWanted:
            self._evicted(book, item, view)
        elif type(item) is Refused and item.reason != "running":
            self._refused(book, item, view)

    def _refused(self, book: Book, item: Refused, view: CoreView) -> None:
        capacity = book.device.capacity
        if item.reason == "too_large":
            if item.needed <= capacity:
                self.fail(f"too large: {item.needed} pages needed of {capacity}")
            return
        if item.reason == "arriving":
            if not any(
                not t.landed and t.tiers[0] == Tier.HOST and len(t.source)
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
        device = book.device
        spare = device.held[NODE] - device.protected - self._own_path(book, item)
        available = view.pool(Tier.DEVICE).free + spare
        if available >= item.needed and not (item.reason == "draining" and waiting):
            self.fail(
                f"refused ({item.reason}): needed {item.needed}, free "
                f"{view.pool(Tier.DEVICE).free} + evictable {spare} = {available}",
                request(item.request),
            )
        if (item.reason == "draining") != waiting:
            self.fail(
                f"refused ({item.reason}): {'some' if waiting else 'no'} pages come back by "
                "themselves",
                request(item.request),
            )

    def _waits_for_a_parent(self, book: Book) -> bool:
        """Whether some page that is locked now, as the path of what drains is, was used before
        all that could be evicted: it comes first, once the drain is over."""
        coldest = book.nodes.coldest(DEVICE, ())
        return coldest is not None and any(
            shadow.locked[0] and shadow.pages[0] is not None and shadow.use < coldest.use
            for shadow in book.nodes.by_id.values()
        )

    def _own_path(self, book: Book, item: Refused) -> int:
        """Unlocked pages of the prefix that the refused request would have reused."""
        seat = book.seats.by_id.get(item.request)
        if seat is None or type(book.event) is not Admitted:
            return 0
        unlocked = 0
        for tag in seat.known[: seat.expected[0]]:
            shadow = book.nodes.at.get(tag)
            if shadow is not None and not shadow.locked[0] and shadow.pages[0] is not None:
                unlocked += shadow.span
        return unlocked

    def _evicted(self, book: Book, item: EvictWanted, view: CoreView) -> None:
        tier = Tier(item.tier)
        gone = sum(
            len(other.pages)
            for other in book.outcomes
            if type(other) is Evicted and other.tier == tier
        )
        drained = view.draining - book.draining_before if tier == Tier.DEVICE else 0
        already = book.draining_before if tier == Tier.DEVICE else 0
        goal = min(item.pages - already, book.evictable_before[tier])
        if drained:
            goal = min(goal, 1)  # what drains locks its path: the rest comes after the reply
        if already and self._waits_for_a_parent(book):
            goal = min(goal, 0)
        if gone + drained < goal:
            self.fail(
                f"{tier.name.lower()}: asked for {item.pages}, evictable "
                f"{book.evictable_before[tier]}, draining before {already}: expected {goal}, "
                f"evicted {gone} and draining now {drained} more"
            )


def check() -> LiveEvict:
    return LiveEvict()
