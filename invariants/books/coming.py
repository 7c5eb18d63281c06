"""Counts the device pages that open replies will free or return to the tree.

Lives here: counting on the page books, ticket by ticket. Does not contain checks.

    retiring     no holder, but an open action still uses the page
    a load's     the load's request is gone: a node gets the page, or the page becomes free
    locked       a node's page that only open actions lock
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Backup, Load
from hicache.core.types import FlightId, Pages

from .book import Book
from .pages import NODE
from .tickets import Ticket


class Coming(NamedTuple):
    """retiring: pages without a holder that an open action still uses. by_ticket: the other pages,
    by the last action that keeps them, in order of issue.
    """

    retiring: int
    by_ticket: dict[FlightId, int]

    @property
    def total(self) -> int:
        return self.retiring + sum(self.by_ticket.values())

    def until(self, flight: FlightId) -> int:
        """Pages, without retiring ones, that the replies up to this flight bring."""
        return sum(pages for ticket, pages in self.by_ticket.items() if ticket <= flight)


def kept(ticket: Ticket, index: int) -> list[Pages]:
    """Device pages of a component that an open action locks."""
    pinned = [pages for slot, pages in ticket.pins if slot == index]
    return pinned + ticket.locked[index] if ticket.locked else pinned


def copied(book: Book) -> NDArray[np.bool_]:
    """Returns bool[capacity]: device pages of the backbone that only backups lock."""
    keepers = np.zeros(book.device.capacity, dtype=np.int64)
    for ticket in book.tickets.open.values():
        if type(ticket.action) is Backup:
            for some in kept(ticket, 0):
                keepers[some] += 1
    only: NDArray[np.bool_] = (keepers > 0) & (book.device.locks == keepers)
    return only


def coming(book: Book, index: int, apart: Pages) -> Coming:
    """Counts the pages of a component's device pool. apart: pages not to count."""
    pages = book.pages[index]
    keepers, last = np.zeros((2, pages.capacity), dtype=np.int64)
    brought: dict[FlightId, int] = {}
    for ticket in book.tickets.open.values():
        brought[ticket.id] = 0
        for some in kept(ticket, index):
            keepers[some] += 1
            last[some] = np.maximum(last[some], ticket.id)
        if type(ticket.action) is Load and ticket.request < 0 and not ticket.landed:
            brought[ticket.id] += sum(len(move.target) for move in ticket.moves if move.at == index)
    locked = (pages.owner & 3 == NODE) & (pages.locks > 0) & (pages.locks == keepers)
    locked[apart] = False
    for flight, count in zip(*np.unique(last[locked], return_counts=True), strict=True):
        brought[int(flight)] += int(count)
    retiring = int(np.count_nonzero((pages.owner == 0) & (pages.busy > 0)))
    return Coming(retiring, dict(sorted(brought.items())))
