"""The independent books of one core, fed from events, outcomes and the read-only view only.

Lives here: the order in which one operation is filed, so that every fact is retracted before its
successor is claimed. Must not live here: verdicts (checks), or code of the core: what the core
computes is computed again here, from what it was told and what it answered.

    landed bytes -> committed bytes -> retract nodes, leavers -> file actions -> retract seats
      -> claim nodes, seats -> pin paths -> clock -> refresh what changed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hicache.core.actions import Backup, Cached, Load, Outcome, Prefill, Refused, Restarted, Seated
from hicache.core.events import (
    Admitted,
    Arrived,
    BackupDone,
    Event,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import NO_PAGES, Key, RequestId, Tier
from hicache.core.view import CoreView

from .pages import NODE, PageBook
from .seats import Seat, SeatBook, tags_of
from .shadow import NodeBook, Shadow
from .tags import Tags, leading
from .tickets import SOURCE, TARGET, Ticket, TicketBook, joined

Issue = Callable[["Book", Outcome, CoreView], None]


class Book:
    """All that the checks know about one core."""

    def __init__(self, view: CoreView) -> None:
        config = view.config
        self.page_size = config.page_size
        self.config = config
        self.pages = [PageBook(tier, view.pool(tier).capacity) for tier in (Tier.DEVICE, Tier.HOST)]
        self.device, self.host = self.pages
        self.nodes = NodeBook(self.pages, config.kv_events)
        self.nodes.root.node = view.root
        self.tickets = TicketBook(self.pages, config.page_size)
        self.seats = SeatBook(self.device)
        self.operations = 0
        self.history = True  # whether every operation was filed
        self.event: Event = Flushed()
        self.outcomes: Sequence[Outcome] = ()
        self.free_before = [book.capacity for book in self.pages]
        self.evictable_before = [0, 0]
        self.draining_before = 0
        self.moving = (NO_PAGES, NO_PAGES)  # source and target of the transfer being filed
        self.missing: list[str] = []  # paths that were used but are not in the tree
        self.answered: Ticket | None = None  # the ticket that the present event answered
        self._arriving = Seat(-1, Key(b"", 1), 0, 0)
        self.left: tuple[Seat, Tags, int] | None = None  # a request that committed and left

    def before(self, event: Event, view: CoreView) -> None:
        """The core is about to see the event: note what only the state before can tell."""
        self.event = event
        for book in self.pages:
            book.begin()
            self.free_before[book.tier] = view.pool(book.tier).free
            self.evictable_before[book.tier] = book.held[NODE] - book.protected
        self.draining_before = view.draining
        kind = type(event)
        if kind is Arrived:
            seat = Seat(event.request, event.key, event.length, event.match_pages)  # type: ignore
            self._expect(seat)
            self._arriving = seat
        elif kind is Admitted or kind is MatchWanted:
            known = self.seats.by_id.get(event.request)  # type: ignore[union-attr]
            if known is not None:
                self._expect(known)

    def _expect(self, seat: Seat) -> None:
        """Brute force over flat sets of cached prefixes: the longest on device, the longest on any
        tier behind it."""
        device, host = self.nodes.resident
        on_device = leading(seat.known, device)
        on_any = on_device
        for tag in seat.known[on_device:]:
            if tag not in device and tag not in host:
                break
            on_any += 1
        seat.expected = (on_device, on_any - on_device)

    def after(
        self,
        event: Event,
        outcomes: Sequence[Outcome],
        view: CoreView,
        issue: dict[type, list[Any]],
    ) -> None:
        """File one operation. `issue` are the checks to ask before an action is filed."""
        self.operations += 1
        self.outcomes = outcomes
        self.missing, self.left, self.answered = [], None, None
        self.tickets.fresh = []
        if type(event) is Arrived:
            self.seats.by_id[event.request] = self._arriving
            self.nodes.stride = event.key.stride
        landed = _EVENTS.get(type(event))
        if landed is not None:
            landed(self, event)
        if type(event) is Flushed and not any(type(item) is Refused for item in outcomes):
            self.tickets.unpin_all()
        self.nodes.retract(view.touched, view.root)
        touched = list(view.touched_requests)
        for request_id in touched:
            self._leave(request_id, view)
        for item in outcomes:
            kind = type(item)
            if kind is Load or kind is Backup:
                self.moving = joined(item.copies, SOURCE), joined(item.copies, TARGET)  # type: ignore[union-attr]
            for ask in issue.get(kind, ()):
                ask(self, item, view)
            if kind is Load or kind is Backup or kind is Prefill:
                self._file(item, view)  # type: ignore[arg-type]
        for request_id in touched:
            self._sit(request_id, view)
        self.nodes.claim()
        self.seats.claim()
        for ticket in self.tickets.fresh:
            self._pin(ticket)
        self._advance_clock(outcomes)
        for book in self.pages:
            book.sort_out()
        for shadow in self.nodes.dirty.values():
            self.nodes.refresh(shadow)

    def glance(self, event: Event) -> None:
        """All that a recount needs to have been told, where operations are not filed."""
        self.operations += 1
        if type(event) is Arrived:
            self.nodes.stride = event.key.stride

    def _leave(self, request_id: RequestId, view: CoreView) -> None:
        """A request that is not seated any more gives everything back."""
        seat, request = self.seats.by_id.get(request_id), view.requests.get(request_id)
        if seat is None or (request is not None and request.seated):
            return
        if seat.seated:
            prefill = self.tickets.open.get(seat.prefill)
            load = self.tickets.open.get(seat.load)
            shared = self.seats.leave(seat, keep_locks=prefill is not None)
            if prefill is not None:
                prefill.shared, prefill.request = shared, -1
            if load is not None:
                load.request = -1
        if request is None:
            del self.seats.by_id[request_id]
        elif type(self.event) is Retracted:
            event = self.event
            again = Seat(request_id, event.key, event.length, event.match_pages)
            again.may_load = seat.may_load
            self.seats.by_id[request_id] = again
        elif any(type(item) is Restarted for item in self.outcomes):
            seat.may_load = False

    def _file(self, action: Load | Backup | Prefill, view: CoreView) -> None:
        ticket = self.tickets.file(action, *self.moving)
        if type(action) is not Prefill:
            one, other = (view.pool(tier).generation for tier in ticket.tiers)
            ticket.generations = (one[ticket.source], other[ticket.target])
        if type(action) is Backup:
            return
        seat = self.seats.by_id.get(action.request)  # type: ignore[union-attr]
        if seat is None:
            return
        if type(action) is Load:
            seat.load = action.flight
        else:
            seat.prefill = action.flight

    def _sit(self, request_id: RequestId, view: CoreView) -> None:
        seat, request = self.seats.by_id.get(request_id), view.requests.get(request_id)
        if seat is None or request is None or not request.seated:
            return
        load = self.tickets.open.get(seat.load)
        awaited = 0 if load is None or load.landed else len(load.target)
        self.seats.retract(seat, request, awaited)

    def _pin(self, ticket: Ticket) -> None:
        """A transfer pins the path to the deepest node it reads, on both tiers, until its reply."""
        if not len(ticket.source):
            return
        code = int(self.pages[ticket.tiers[0]].owner[ticket.source[-1]])
        if code & 3 != NODE:
            self.missing.append(f"flight {ticket.id} reads page {ticket.source[-1]} of no node")
            return
        for shadow in self.nodes.path(code >> 2):
            for tier in (0, 1):
                pages = shadow.pages[tier]
                if pages is not None:
                    self.pages[tier].locks[pages] += 1
                    ticket.pins.append((tier, pages))
                    self.nodes.dirty[shadow.id] = shadow

    def _advance_clock(self, outcomes: Sequence[Outcome]) -> None:
        """One tick per event that uses a path: a seat, computed pages, or committed pages."""
        for item in outcomes:
            if type(item) is Seated:
                seat = self.seats.by_id.get(item.request)
                if seat is not None:
                    self._use(seat.tags, item.device_pages + item.host_pages, item.request)
            elif type(item) is Cached:
                seat = self.seats.by_id.get(item.request)
                if seat is not None:
                    self._use(seat.tags, item.pages, item.request)
        if self.left is not None:
            seat, tags, pages = self.left
            self._use(tags, pages, seat.id)

    def _use(self, tags: Tags, pages: int, request: RequestId) -> None:
        self.nodes.clock += 1
        if pages and not (pages <= len(tags) and self.nodes.used(int(tags[pages - 1]))):
            self.missing.append(f"{pages} pages of request {request} end at no node")

    # What an event says about bytes and tickets, before anything the core did about it.

    def _prefill_done(self, event: PrefillDone) -> None:
        ticket = self.answered = self.tickets.open.get(event.flight)
        if ticket is None:
            return
        seat = self.seats.by_id.get(ticket.request)
        if seat is not None and seat.prefill == ticket.id:
            seat.prefill = 0
            load = self.tickets.open.get(seat.load)
            if event.ok:
                if load is not None:
                    self.tickets.land(load, True)
                seat.load = 0
                seat.computed = ticket.action.end  # type: ignore[union-attr]
            self.tickets.land_prefill(ticket, event.ok, seat.tags)
        else:
            self.tickets.land_prefill(ticket, False, self.nodes.root.tags)
        self.tickets.close(ticket)

    def _load_done(self, event: LoadDone) -> None:
        ticket = self.answered = self.tickets.open.get(event.flight)
        if ticket is None:
            return
        self.tickets.land(ticket, event.ok)
        self.tickets.close(ticket)
        seat = self.seats.by_id.get(ticket.request)
        if seat is not None and seat.load == ticket.id:
            seat.load = 0

    def _backup_done(self, event: BackupDone) -> None:
        ticket = self.answered = self.tickets.open.get(event.flight)
        if ticket is not None:
            self.tickets.land(ticket, event.ok)
            self.tickets.close(ticket)

    def _finished(self, event: Finished) -> None:
        self._commit(event.request, event.key)

    def _retracted(self, event: Retracted) -> None:
        self._commit(event.request, event.key.first(event.committed // self.page_size))

    def _commit(self, request: RequestId, key: Key) -> None:
        """The engine vouches for the bytes of the pages behind those computed by prefills."""
        seat = self.seats.by_id.get(request)
        if seat is None:
            return
        tags = tags_of(key)
        known = min(seat.computed // self.page_size, len(seat.tags))
        pages = min(len(tags), len(seat.table))
        if pages > known:
            self.device.content[seat.table[known:pages]] = tags[known:pages]
        self.left = (seat, tags, pages)

    def shadow_of(self, tier: int, page: int) -> Shadow | None:
        """The node that has a page, if one has."""
        code = int(self.pages[tier].owner[page])
        return self.nodes.by_id.get(code >> 2) if code & 3 == NODE else None


_EVENTS: dict[type, Callable[[Book, Any], None]] = {
    PrefillDone: Book._prefill_done,
    LoadDone: Book._load_done,
    BackupDone: Book._backup_done,
    Finished: Book._finished,
    Retracted: Book._retracted,
}
