"""Bounds of the memory of page numbers, and of the work of an operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hicache.core.actions import Evicted, Prefill
from hicache.core.events import Flushed
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.tickets import Ticket

PAGE_NUMBER_BYTES = 8


def owner_of(array: Any) -> Any:
    """The array, or other buffer, that owns the memory of an array."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def kept_bytes(arrays: Iterable[Pages]) -> int:
    """The bytes that these arrays keep in memory. The owner may also be an object of bytes."""
    owners = {id(owner): owner for owner in map(owner_of, arrays)}
    return sum(memoryview(owner).nbytes for owner in owners.values())


def arrays_of(view: CoreView) -> Iterator[Pages]:
    """Every array of page numbers of nodes, requests and flights. The pools' own arrays have a
    fixed size and are left out."""
    for node in view.nodes():
        for side in node.pages:
            yield from (pages for pages in side if pages is not None)
    for request in view.requests.values():
        yield from request.tables
    for flight in view.flights.values():
        yield from flight.lent
        for leg in flight.legs:
            yield leg.source
            yield leg.target


def needed_bytes(book: Book) -> int:
    """The bytes that live pages need, by the books: a number for each page of a node, for each
    place of an admitted request's tables, and for each page that an open action reads or writes. A
    pass needs its tables even if its request has gone. The targets of a transfer are one array;
    where a node of it was split, the halves have copies beside it, so targets count twice."""
    needed = sum(
        len(pages)
        for mirror in book.nodes.by_id.values()
        for pages in mirror.pages
        if pages is not None
    )
    needed += sum(len(table) for req in book.requests.by_id.values() for table in req.tables)
    for ticket in book.tickets.open.values():
        if not ticket.landed:
            needed += sum(len(move.source) + 2 * len(move.target) for move in ticket.moves)
        action = ticket.action
        if type(action) is Prefill:
            needed += sum(len(table) for table in action.tables)
            needed += sum(len(use.busy) for use in ticket.uses)
    return PAGE_NUMBER_BYTES * needed


SLACK = 1  # a node that came and went within one operation


class RssBound(Check):
    name = "RSS-BOUND"
    sentence = (
        "The page numbers that nodes, requests and actions in flight keep in memory, the whole "
        "array below each view included, take no more bytes than their live pages need; an "
        "eviction queue has at most twice as many entries as there ever were nodes."
    )

    def __init__(self) -> None:
        self._most = 0  # nodes

    def totals(self, book: Book, view: CoreView) -> None:
        self._most = max(self._most, len(book.nodes.by_id))

    def audit(self, book: Book, view: CoreView) -> None:
        kept, needed = kept_bytes(arrays_of(view)), needed_bytes(book)
        if kept > needed:
            self.fail(
                f"page numbers in memory: expected at most {needed} bytes for "
                f"{len(book.nodes.by_id)} nodes, {len(book.requests.by_id)} requests and "
                f"{len(book.tickets.open)} actions in flight, found {kept}"
            )
        most = max(view.least_swept, 2 * (self._most + SLACK))
        for queue in book.nodes.queues:
            if len(queue.ranks) > most:
                self.fail(
                    f"an eviction queue with {len(queue.ranks)} entries, expected at most {most}: "
                    f"there were never more than {self._most} nodes"
                )


class WorkBound(Check):
    name = "WORK-BOUND"
    sentence = (
        "The number of nodes that an operation touches is bounded by the nodes on the paths that "
        "it uses or copies, the nodes that were added, removed or evicted, their neighbours, and "
        "the nodes whose live distance changed."
    )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history or type(book.event) is Flushed:
            return
        touched = len(view.touched)
        if touched <= 8:
            return
        victims = sum(type(item) is Evicted for item in book.outcomes)
        moved = len(book.nodes.gone) + book.nodes.came
        turned = book.nodes.turned
        most = 8 + 3 * (victims + moved) + 2 * turned
        if touched <= most:
            return
        paths = self._paths(book, view)
        most += paths
        if touched > most:
            self.fail(
                f"{touched} nodes touched by {type(book.event).__name__}; expected at most {most}: "
                f"8 + {paths} on paths + 3 * ({victims} victims + {moved} that came or went) + 2 * "
                f"{turned} that serve another distance now",
                *(story.node(one) for one in list(view.touched)[:1]),
            )

    def _paths(self, book: Book, view: CoreView) -> int:
        """Number of nodes on the paths of the operation's requests, transfers and pins."""
        asked = getattr(book.event, "request", -1)
        reqs = [
            book.requests.by_id.get(number) for number in {**view.touched_requests, asked: None}
        ]
        tags = [req.tags for req in (*reqs, *book.parted) if req is not None]
        if book.left is not None:
            tags.append(book.left)
        tags += book.wants.moved
        tickets = [one for one in (*book.tickets.fresh, book.answered) if one is not None]
        # A pass keeps the locks of its request if that has left. It is on every node that these
        # were split into since.
        tags += (one.prompt for one in tickets if type(one.action) is Prefill)
        found = sum(sum(map(book.nodes.at.__contains__, one.tolist())) for one in tags)
        return found + sum(_pinned(book, ticket) for ticket in tickets)


def _pinned(book: Book, ticket: Ticket) -> int:
    """Number of nodes on the path of a transfer: when it began, or more if one of them was split
    since, because its locks are on both halves then.
    """
    now = len(book.nodes.path(ticket.nodes[0])) if ticket.nodes else 0
    return max(ticket.path, now)


CHECKS = (RssBound, WorkBound)
