"""Refusals and evictions agree with the pages that were available."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Backup, Evicted, Load, Refused
from hicache.core.events import EvictWanted
from hicache.core.types import NO_PAGES, FlightId, Pages, Tier
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.coming import Coming, above_write_backs, coming, under_copy
from invariants.books.mirror import DEVICE
from invariants.books.story import pool, request
from invariants.books.waiting import WritingBack
from invariants.checks._victims import depths, needs
from invariants.reasons import Reason

_OF_NO_PAGES = ("running", "fetching", "detaching")  # refusals for another reason than pages


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
            self._evicted(book, item)
        elif type(item) is Refused and item.reason not in _OF_NO_PAGES:
            self._refused(book, item)

    def _refused(self, book: Book, item: Refused) -> None:
        index = book.index_of(item.component)
        capacity = book.pages[index].capacity
        if item.reason == "too_large":
            capacity -= book.wants.beside(book.requests.by_id.get(item.request))
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
        self._short(book, item)

    def _short(self, book: Book, item: Refused) -> None:
        """Checks a refusal for lack of pages: whether the pages were available, and which reply
        brings them.

        An admission is planned with or without a load; the refusal must be right for one of the
        two.
        """
        found = depths(book, book.requests.by_id.get(item.request))
        most = needs(book, item, book.index_of(item.component))
        wrong = [
            self._wrong(book, item, self._own_path(book, item, depth), need)
            for depth, need in zip(found, most, strict=True)
        ]
        if all(wrong):
            self.fail(f"refused ({item.reason}): {wrong[0]}", request(item.request))
        if any(wrong):
            self.excuse(Reason.EITHER_PLAN)

    def _wrong(self, book: Book, item: Refused, own: Pages, most: int) -> str:
        """Returns the error of a refusal, or "". own: pages on the path of the refused request,
        which it would have locked. most: the pages that it can have wanted.
        """
        index = book.index_of(item.component)
        device = book.pages[index]
        spare = device.evictable - int((device.locks[own] == 0).sum())
        available, more = device.free + spare, coming(book, index, own)
        found = (
            f"needed {item.needed} {item.component} pages, free {device.free} + evictable {spare} ="
            f" {available}, with all replies {available + more.total}"
        )
        if item.needed > most:
            return f"{found}; it can have wanted {most}"
        if item.available != available:
            return f"{found}; it says that {item.available} are available"
        if item.reason == "no_pages":
            return found if available + more.total >= item.needed else ""
        ticket = book.tickets.open.get(item.after)
        if ticket is None:
            return f"{found}; it waits for flight {item.after}, which is not open"
        if available >= item.needed:
            if type(ticket.action) is not Backup:
                return f"{found}; it waits for no copy to host"
            due = self._due(book, index, item.needed, more)
            last = f"{found}; flight {due} brings the last of them"
            return "" if item.after in due else last
        if available + more.until(item.after) < item.needed:
            return f"{found}; too few come with flight {item.after}"
        if available + more.until(item.after - 1) >= item.needed:
            return f"{found}; enough come before flight {item.after}"
        return ""

    def _due(self, book: Book, index: int, needed: int, more: Coming) -> list[FlightId]:
        """The flights of which one brings the last of the pages that are available but held back:
        the write-back with which enough are free, or the last one; without one, the first copy to
        host that unlocks a page. Several if it is uncertain what a write-back frees.
        """
        backups = [one for one in book.tickets.open.values() if type(one.action) is Backup]
        leaving = [one for one in backups if index in one.evicts]
        if any(len(one.evicts) > 1 for one in leaving):
            self.excuse(Reason.SEVERAL_COMPONENTS)
            return [one.id for one in backups]
        free = book.pages[index].free
        for ticket in leaving:
            free += ticket.frees.get(index, 0)
            if free >= needed:
                return [ticket.id]
        if leaving:
            return [leaving[-1].id]
        copies = [one.id for one in backups if more.by_ticket[one.id]]
        return copies[:1]

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

    def _evicted(self, book: Book, item: EvictWanted) -> None:
        tier, index = Tier(item.tier), book.index_of(item.component)
        gone = sum(
            len(other.pages)
            for other in book.outcomes
            if type(other) is Evicted and (other.tier, other.component) == (tier, item.component)
        )
        on_device = tier == Tier.DEVICE
        begun = sum(one.frees.get(index, 0) for one in book.tickets.fresh) if on_device else 0
        already = book.writing_back_before[index] if on_device else WritingBack(0, 0)
        slot = tier * book.width + index
        goal = min(item.pages - already.least, book.evictable_before[slot])
        if gone + begun >= goal:
            return
        if gone + begun >= goal - (already.most - already.least):
            self.excuse(Reason.SEVERAL_COMPONENTS)
            return
        if on_device and any(len(one.evicts) > 1 for one in book.tickets.open.values()):
            self.excuse(Reason.SEVERAL_COMPONENTS)  # it is uncertain whose parents can go next
            return
        reason = self._held_back(book, slot, begun) if on_device else None
        if reason:
            self.excuse(reason)
            return
        self.fail(
            f"{book.pages[slot].where}: asked for {item.pages}, evictable "
            f"{book.evictable_before[slot]}, writing back before {already.least}: expected "
            f"{goal}, evicted {gone} and writing back now {begun} more",
            pool(book.pages[slot]),
        )

    def _held_back(self, book: Book, index: int, begun: int) -> Reason | None:
        """Why nothing more of a component is evicted from device, if there is a reason. A page is
        held back by a colder one that can be evicted when a copy to host under way has ended.
        """
        first = book.nodes.coldest(index, DEVICE, ())
        rank = first.rank[index] if first is not None else None
        if rank is None:
            return Reason.LOCKED_PATH if begun else None
        if index or not rank[0]:
            return None
        unknown = book.nodes.declared.key is None
        for reason, keys in (
            (Reason.ABOVE_WRITE_BACK, above_write_backs(book)),
            (Reason.COLDER_COPY, under_copy(book)),
        ):
            if any(unknown or key < rank[1] for key in keys):
                return reason
        return None


def check() -> LiveEvict:
    return LiveEvict()
