"""Counts the device pages that open replies will free or return to the tree.

Lives here: counting on the page books, ticket by ticket. Does not contain checks.

    retiring     no holder, but open actions still use the page: it is free with the last of them
    a load's     the load's request is gone: a node gets the page, or the page becomes free; if the
                 pass of that request still reads it, with the pass
    locked       a node's page that only open actions lock
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Backup, Load
from hicache.core.types import FlightId, Pages

from .book import Book
from .mirror import Key
from .pages import NODE
from .tickets import Ticket


class Coming(NamedTuple):
    """by_ticket: the pages, by the last action that keeps them, in order of issue."""

    by_ticket: dict[FlightId, int]

    @property
    def total(self) -> int:
        return sum(self.by_ticket.values())

    def until(self, flight: FlightId) -> int:
        """Pages that the replies up to this flight bring."""
        return sum(pages for ticket, pages in self.by_ticket.items() if ticket <= flight)


def kept(ticket: Ticket, index: int) -> list[Pages]:
    """Device pages of a component that an open action locks."""
    pinned = [pages for slot, pages in ticket.pins if slot == index]
    return pinned + ticket.locked[index] if ticket.locked else pinned


def above_write_backs(book: Book) -> list[Key]:
    """Keys, in the order of eviction, of the parents of nodes whose backbone is written back. They
    can be evicted when the copy has ended.
    """
    leaving = {
        code >> 2: None
        for ticket in book.tickets.open.values()
        if 0 in ticket.evicts
        for move in ticket.moves
        for code in book.pages[move.at].owner[move.source].tolist()
    }
    nodes = [book.nodes.by_id[one].parent for one in leaving if one in book.nodes.by_id]
    ranks = [
        above.rank[0]
        for above in nodes
        if above is not None and above.parent is not None and above.id not in leaving
    ]
    return [rank[1] for rank in ranks if rank is not None]


def under_copy(book: Book) -> list[Key]:
    """Keys of nodes that nothing but copies to host locks on device, one of which a use began."""
    backups = [one for one in book.tickets.open.values() if type(one.action) is Backup]
    if all(one.evicts for one in backups):
        return []
    locks: Counter[tuple[int, int]] = Counter()  # by component and page
    nodes: dict[int, None] = {}
    for ticket in backups:
        for index in range(book.width):
            for pages in kept(ticket, index):
                for page in pages.tolist():
                    locks[index, page] += 1
                    if not index and not ticket.evicts:
                        nodes[int(book.device.owner[page]) >> 2] = None
    found = []
    for mirror in (book.nodes.by_id[one] for one in nodes if one in book.nodes.by_id):
        held = [(at, mirror.pages[at]) for at in range(book.width)]
        counts = [
            (mirror.locked[at], locks[at, int(pages[0])]) for at, pages in held if pages is not None
        ]
        rank = mirror.rank[0]
        if rank is not None and all(one == other for one, other in counts):
            found.append(rank[1])
    return found


def coming(book: Book, index: int, apart: Pages) -> Coming:
    """Counts the pages of a component's device pool. apart: pages not to count."""
    pages = book.pages[index]
    keepers, last, user = np.zeros((3, pages.capacity), dtype=np.int64)
    brought: dict[FlightId, int] = dict.fromkeys(book.tickets.open, 0)
    for ticket in book.tickets.open.values():
        for used in _used(ticket, index):
            user[used] = ticket.id
        for some in kept(ticket, index):
            keepers[some] += 1
            last[some] = np.maximum(last[some], ticket.id)
        if type(ticket.action) is Load and ticket.request < 0 and not ticket.landed:
            user_id = (book.tickets.reader(ticket) or ticket).id
            brought[user_id] += sum(len(move.target) for move in ticket.moves if move.at == index)
    locked = (pages.owner & 3 == NODE) & (pages.locks > 0) & (pages.locks == keepers)
    locked[apart] = False
    for flight, count in zip(*np.unique(last[locked], return_counts=True), strict=True):
        brought[int(flight)] += int(count)
    for flight in user[(pages.owner == 0) & (pages.busy > 0)].tolist():
        brought[flight] += 1
    return Coming(dict(sorted(brought.items())))


def _used(ticket: Ticket, index: int) -> list[Pages]:
    """Device pages of a component that an open action reads or writes."""
    sources = [move.source for move in ticket.moves if move.at == index]
    copies = sources if type(ticket.action) is Backup else []
    return copies + [use.busy[use.busy >= 0] for use in ticket.uses if use.at == index]
