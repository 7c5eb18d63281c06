"""Tickets: the actions nobody has answered yet, and what each of them reads, writes and pins.

Lives here: filing an action, landing its bytes and closing it at its reply, on the page books.
Must not live here: requests, nodes, or verdicts.

    load      reads host pages, writes device pages (lent to the ticket until it lands)
    backup    reads device pages, writes host pages (lent to the ticket until its reply)
    prefill   reads the request's table up to `start`, writes it from there to `end`
"""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Backup, Copy, Load, Prefill
from hicache.core.types import NO_PAGES, FlightId, Pages, RequestId, Tier

from .pages import FLIGHT, PageBook, code_of
from .tags import POISON, Tags

SOURCE, TARGET = 0, 1


class Ticket:
    """One unanswered action. `generations` are those of source and target when it was issued."""

    __slots__ = (
        "action",
        "generations",
        "id",
        "landed",
        "pins",
        "request",
        "shared",
        "source",
        "target",
        "wide",
    )

    def __init__(self, action: Load | Backup | Prefill, request: RequestId) -> None:
        self.action = action
        self.id: FlightId = action.flight
        self.request = request
        self.source: Pages = NO_PAGES
        self.target: Pages = NO_PAGES
        self.generations: tuple[Pages, Pages] = (NO_PAGES, NO_PAGES)
        self.pins: list[tuple[int, Pages]] = []  # pages of the path that it keeps in the tree
        self.shared: Pages = NO_PAGES  # locks taken over from a request that is gone
        self.landed = False
        self.wide: Pages = NO_PAGES  # a prefill's whole table

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """Where source and target are."""
        if type(self.action) is Load:
            return Tier.HOST, Tier.DEVICE
        return Tier.DEVICE, Tier.HOST


def joined(copies: tuple[Copy, ...], side: int) -> Pages:
    """The sources or the targets of all copies, in order."""
    arrays = [copy.source if side == SOURCE else copy.target for copy in copies]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else NO_PAGES


def written(action: Prefill, page_size: int) -> Pages:
    """The pages that a prefill writes, the first and last perhaps in part."""
    if action.end <= action.start:
        return NO_PAGES
    return action.table[action.start // page_size : -(-action.end // page_size)]


class TicketBook:
    """All open tickets."""

    def __init__(self, pages: list[PageBook], page_size: int) -> None:
        self.pages = pages
        self.page_size = page_size
        self.open: dict[FlightId, Ticket] = {}
        self.latest: FlightId = 0
        self.fresh: list[Ticket] = []  # filed by the present operation

    def file(self, action: Load | Backup | Prefill, source: Pages, target: Pages) -> Ticket:
        """source and target: of a transfer, all copies in order."""
        device = self.pages[0]
        request = -1 if type(action) is Backup else action.request  # type: ignore[union-attr]
        ticket = Ticket(action, request)
        if type(action) is Prefill:
            ticket.wide = action.table
            device.begin_use(action.table)
            device.writer[written(action, self.page_size)] = action.flight
        elif isinstance(action, Load | Backup):
            ticket.source, ticket.target = source, target
            one, other = (self.pages[tier] for tier in ticket.tiers)
            one.begin_use(ticket.source)
            other.begin_use(ticket.target)
            other.writer[ticket.target] = action.flight
            other.claim(ticket.target, code_of(FLIGHT, action.flight))
        self.open[action.flight] = ticket
        self.latest = max(self.latest, action.flight)
        self.fresh.append(ticket)
        return ticket

    def land(self, ticket: Ticket, ok: bool) -> None:
        """A transfer's bytes are there, or will never be; its target pages are up for adoption."""
        if ticket.landed:
            return
        ticket.landed = True
        one, other = (self.pages[tier] for tier in ticket.tiers)
        other.content[ticket.target] = one.content[ticket.source] if ok else POISON
        other.writer[ticket.target] = 0
        one.end_use(ticket.source)
        other.end_use(ticket.target)
        other.retract(ticket.target, code_of(FLIGHT, ticket.id))

    def land_prefill(self, ticket: Ticket, ok: bool, tags: Tags) -> None:
        """A forward pass ended: the whole pages it completed hold the prompt's bytes."""
        action = ticket.action
        if type(action) is not Prefill:
            return
        device = self.pages[0]
        pages = written(action, self.page_size)
        device.writer[pages] = 0
        first = action.start // self.page_size
        done = min(action.end // self.page_size, len(tags)) if ok else first
        if done > first:
            device.content[action.table[first:done]] = tags[first:done]
        if not ok:
            device.content[pages] = POISON
        device.end_use(action.table)

    def close(self, ticket: Ticket) -> None:
        """Its reply came: pins and inherited locks end."""
        del self.open[ticket.id]
        for tier, pages in ticket.pins:
            self.pages[tier].locks[pages] -= 1
        if len(ticket.shared):
            self.pages[0].locks[ticket.shared] -= 1
        ticket.pins, ticket.shared = [], NO_PAGES

    def unpin_all(self) -> None:
        """A flush: the tree that was pinned is gone."""
        for ticket in self.open.values():
            ticket.pins, ticket.shared = [], NO_PAGES
        for book in self.pages:
            book.locks[:] = 0
