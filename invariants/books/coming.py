"""Device pages that replies under way bring: nobody's then, or a node's without a lock.

Lives here: counting them on the page books, ticket by ticket. Must not live here: verdicts.

    retiring     nobody holds the page, an open action still uses it
    a load's     the request that it was for is gone: a node gets the page, or it is free
    locked       a node's page that nothing but open actions locks
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
    """retiring: pages that some open action still uses. by_ticket: the others, by the last action
    that keeps them, in the order in which the actions were issued."""

    retiring: int
    by_ticket: dict[FlightId, int]

    @property
    def total(self) -> int:
        return self.retiring + sum(self.by_ticket.values())

    def until(self, flight: FlightId) -> int:
        """Pages, retiring ones apart, that come with the replies up to this one."""
        return sum(pages for ticket, pages in self.by_ticket.items() if ticket <= flight)


def kept(ticket: Ticket, index: int) -> list[Pages]:
    """Device pages of a component that an open action locks."""
    pinned = [pages for slot, pages in ticket.pins if slot == index]
    return pinned + ticket.locked[index] if ticket.locked else pinned


def copied(book: Book) -> NDArray[np.bool_]:
    """bool[capacity]: device pages of the backbone that only copies to host lock."""
    keepers = np.zeros(book.device.capacity, dtype=np.int64)
    for ticket in book.tickets.open.values():
        if type(ticket.action) is Backup:
            for some in kept(ticket, 0):
                keepers[some] += 1
    only: NDArray[np.bool_] = (keepers > 0) & (book.device.locks == keepers)
    return only


def coming(book: Book, index: int, apart: Pages) -> Coming:
    """Of a component's device pool. apart: pages that are not counted."""
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
