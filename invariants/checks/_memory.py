"""The bytes of page numbers that a core keeps in memory, and those that its live pages need.

Lives here: following views to the array that owns their memory, and counting what nodes, requests
and open actions need by the books. Does not judge, see `rss_bound`.

A view keeps the whole array below it in memory, so an array counts with the bytes of its owner, and
each owner counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hicache.core.actions import Prefill
from hicache.core.types import Pages
from hicache.core.view import CoreView

from ..books.book import Book

PAGE_NUMBER_BYTES = 8


def owner_of(array: Any) -> Any:
    """The array, or other buffer, that owns the memory of an array."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def kept_bytes(arrays: Iterable[Pages]) -> int:
    """The bytes that these arrays keep in memory."""
    owners = {id(owner): owner for owner in map(owner_of, arrays)}
    return sum(memoryview(owner).nbytes for owner in owners.values())  # of bytes, too


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
