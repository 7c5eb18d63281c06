"""Refusals and evictions agree with the pages that were available."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Backup, Evicted, Load, Refused
from hicache.core.events import AdmitWanted, EvictWanted
from hicache.core.types import NO_PAGES, FlightId, Pages, Tier
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.coming import coming, copied
from invariants.books.mirror import DEVICE
from invariants.books.pages import NODE
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
        capacity = book.pages[index].capacity
        if item.reason == "too_large":
            if item.needed <= capacity:
                self.fail(
                    f"too large: {item.needed} {item.component} pages needed of {capacity}",
                    request(item.request),
                )
            return
        if item.reason == "arriving":
            ticket = book.tickets.open.get(item.after)
            if ticket is None or ticket.landed or type(ticket.action) is not Load:
                self.fail(
                    f"refused as arriving: expected flight {item.after} to be an unanswered load",
                    request(item.request),
                )
            return
        self._short(book, item, view)

    def _short(self, book: Book, item: Refused, view: CoreView) -> None:
        """Checks a refusal for lack of pages: whether the pages were available, and which reply
        brings them.

        An admission is planned with or without a load; the refusal must be right for one of the
        two.
        """
        wrong = [
            self._wrong(book, item, view, self._own_path(book, item, depth))
            for depth in self._depths(book, item)
        ]
        if all(wrong):
            self.fail(f"refused ({item.reason}): {wrong[0]}", request(item.request))

    def _wrong(self, book: Book, item: Refused, view: CoreView, own: Pages) -> str:
        """Returns the error of a refusal, or "". own: pages on the path of the refused request,
        which it would have locked.
        """
        index = book.index_of(item.component)
        device, free = book.pages[index], view.pool(Tier.DEVICE, index).free
        spare = device.held[NODE] - device.protected - int((device.locks[own] == 0).sum())
        available, more = free + spare, coming(book, index, own)
        found = (
            f"needed {item.needed} {item.component} pages, free {free} + evictable {spare} = "
            f"{available}, with all replies {available + more.total}"
        )
        if item.reason == "no_pages":
            return found if available + more.total >= item.needed else ""
        ticket = book.tickets.open.get(item.after)
        if ticket is None:
            return f"{found}; it waits for flight {item.after}, which is not open"
        if available >= item.needed:
            if type(ticket.action) is not Backup:
                return f"{found}; it waits for no copy to host"
            due = self._last_needed(book, free, item.needed)
            last = f"{found}; flight {due} brings the last of them"
            return "" if due in (0, item.after) else last
        if available + more.retiring + more.until(item.after) < item.needed:
            return f"{found}; too few come with flight {item.after}"
        if available + more.until(item.after - 1) >= item.needed:
            return f"{found}; enough come before flight {item.after}"
        return ""

    def _last_needed(self, book: Book, free: int, needed: int) -> FlightId:
        """The write-back with which enough pages are free, or the last one. 0 where the books do
        not know which copies an eviction waits for: with several components, or where uses begin
        some."""
        if book.width > 1 or book.writes.threshold:
            return 0
        last = 0
        for ticket in book.tickets.open.values():
            if type(ticket.action) is Backup and ticket.pins:
                free, last = free + sum(len(move.source) for move in ticket.moves), ticket.id
                if free >= needed:
                    break
        return last

    def _depths(self, book: Book, item: Refused) -> tuple[int, ...]:
        """Boundaries in pages from which the refused request may have been planned to start."""
        req = book.requests.by_id.get(item.request)
        if req is None or type(book.event) is not AdmitWanted:
            return (0,)
        return tuple({req.expected.device: None, req.expected.best: None})

    def _waits_for_a_parent(self, book: Book) -> bool:
        """Whether a locked page comes before all present candidates in the order of eviction.

        The path of a write-back is locked like this; the page is evicted first when the write-back
        ends.
        """
        coldest = book.nodes.coldest(0, DEVICE, ())
        first = coldest.rank[0] if coldest is not None else None
        return first is not None and any(
            mirror.locked[0]
            and mirror.pages[0] is not None
            and rank is not None
            and (rank[1] < first[1] or book.nodes.declared.key is None)
            for mirror in book.nodes.by_id.values()
            for rank in mirror.rank[:1]
        )

    def _parent_is_next(self, book: Book) -> bool:
        """The same of the backbone, exactly: the parent of a node that is written back goes before
        all that could be evicted now."""
        written = np.zeros(book.device.capacity, dtype=bool)
        for ticket in book.tickets.open.values():
            if type(ticket.action) is Backup:
                for move in ticket.moves:
                    written[move.source if not move.at else []] = True
        mirrors = [one for one in book.nodes.by_id.values() if one.pages[0] is not None]
        leaving = {one.id for one in mirrors if written[one.pages[0][0]]}  # type: ignore[index]
        parents = [one.parent for one in mirrors if one.id in leaving and one.parent is not None]
        ranks = [one.rank[0] for one in parents if one.id not in leaving and one.parent is not None]
        coldest = book.nodes.coldest(0, DEVICE, ())
        first = coldest.rank[0] if coldest is not None else None
        if first is None or not ranks:
            return False
        unjudged = book.nodes.declared.key is None
        return unjudged or any(rank is not None and rank[1] < first[1] for rank in ranks)

    def _ahead_of_copies(self, book: Book, goal: int) -> int:
        """How many of these pages of the backbone can be evicted before a copy to host under way
        holds back what is warmer than the page that it reads."""
        if not book.writes.threshold:
            return goal  # no copy begins but for an eviction
        only = copied(book)
        held = [
            mirror.rank[0]
            for mirror in book.nodes.by_id.values()
            for pages in mirror.pages[:1]
            if pages is not None and only[pages[0]]
        ]
        floor = min((rank for rank in held if rank is not None), default=None)
        coldest = book.nodes.coldest(0, DEVICE, ())
        first = coldest.rank[0] if coldest is not None else None
        if floor is None or first is None:
            return goal
        return 1 if first <= (True, floor[1]) and book.nodes.declared.key is not None else 0

    def _own_path(self, book: Book, item: Refused, depth: int) -> Pages:
        """Device pages that a prefix of `depth` pages of the refused request requires."""
        req = book.requests.by_id.get(item.request)
        parts, index = [NO_PAGES], book.index_of(item.component)
        known = req.known[max(0, depth - book.kinds[index].need) : depth] if req else ()
        for tag in known:
            mirror = book.nodes.at.get(tag)
            held = mirror.pages[index] if mirror is not None else None
            if held is not None:
                parts.append(held)
        return np.concatenate(parts)

    def _evicted(self, book: Book, item: EvictWanted, view: CoreView) -> None:
        tier, index = Tier(item.tier), book.index_of(item.component)
        gone = sum(
            len(other.pages)
            for other in book.outcomes
            if type(other) is Evicted and (other.tier, other.component) == (tier, item.component)
        )
        already = book.writing_back_before[index] if tier == Tier.DEVICE else 0
        begun = view.writing_back(index) - already if tier == Tier.DEVICE else 0
        slot = tier * book.width + index
        goal = min(item.pages - already, book.evictable_before[slot])
        if begun:
            goal = min(goal, 1)  # a write-back locks its path: the rest comes after the reply
        if already and (self._waits_for_a_parent(book) if index else self._parent_is_next(book)):
            goal = min(goal, 0)
        if tier == Tier.DEVICE and not index:
            goal = min(goal, self._ahead_of_copies(book, goal))
        if gone + begun < goal:
            self.fail(
                f"{book.pages[slot].where}: asked for {item.pages}, evictable "
                f"{book.evictable_before[slot]}, writing back before {already}: expected {goal}, "
                f"evicted {gone} and writing back now {begun} more",
                pool(book.pages[slot]),
            )


def check() -> LiveEvict:
    return LiveEvict()
