"""Shared code of the checks of storage: what an event may be answered with, and the pages of a
store by the node that has them now.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hicache.core.actions import (
    Abandoned,
    Delete,
    Fetch,
    Lookup,
    Prefetched,
    StorageDetached,
    Store,
)
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    DeleteDone,
    DetachWanted,
    FetchDone,
    Finished,
    Flushed,
    LookupDone,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
    StoreDone,
)
from hicache.core.types import FlightId, Tier
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import NODE
from invariants.books.tickets import OF_STORAGE, Ticket

ACTIONS = OF_STORAGE
# What else an event may be answered with, beside what it is answered with without storage.
MAY_BRING: dict[type, tuple[type, ...]] = {
    Arrived: (Lookup, Prefetched),
    AdmitWanted: (Prefetched, Abandoned),
    PrefetchLimitReached: (Prefetched, Abandoned),
    Aborted: (Abandoned,),
    Flushed: (Prefetched, Abandoned, Delete),
    DetachWanted: (Prefetched, Abandoned, StorageDetached),
    PrefillDone: (Store,),
    Finished: (Store,),
    Retracted: (Store,),
    BackupDone: (Store,),
    LookupDone: (Fetch, Prefetched, Lookup, StorageDetached),
    FetchDone: (Prefetched, Lookup, StorageDetached),
    StoreDone: (Store, StorageDetached),
    DeleteDone: (Store, StorageDetached),
}
OUTCOMES = (*ACTIONS, Prefetched, Abandoned, StorageDetached)


class Part(NamedTuple):
    """Pages of a store that one node has: of a component, from page `first` of the prompt on.
    place: how many pages of the store come before them. Empty tags: the node is gone."""

    at: int
    mirror: NodeMirror | None
    digests: tuple[bytes, ...]
    tags: tuple[int, ...]
    first: int
    place: int

    @property
    def end(self) -> int:
        return self.place + len(self.digests)


def parts_of(book: Book, ticket: Ticket) -> Iterator[Part]:
    """The pages of a store by component and node, in the order of its pieces. A piece has several
    parts if its node was split since."""
    place = 0
    action = ticket.action
    for piece in action.pieces if type(action) is Store else ():
        at = book.index_of(piece.component)
        host = book.pool(Tier.HOST, at)
        codes = host.owner[piece.pages].tolist()
        tags = host.content[piece.pages].tolist()
        start = 0
        while start < len(codes):
            stop = start
            while stop < len(codes) and codes[stop] == codes[start]:
                stop += 1
            ours = codes[start] & 3 == NODE
            mirror = book.nodes.by_id.get(codes[start] >> 2) if ours else None
            yield Part(
                at,
                mirror,
                piece.digests[start:stop],
                tuple(tags[start:stop]) if mirror is not None else (),
                piece.first_page + start,
                place + start,
            )
            start = stop
        place += len(codes)


def locked_beside(book: Book, mirror: NodeMirror) -> bool:
    """Whether anything but fetches and stores locks a host copy of the node. Those lock what comes
    to host above or beside it, too, so they keep nothing away."""
    for slot in range(book.width, 2 * book.width):
        pages, others = mirror.pages[slot], mirror.locked[slot]
        for number in open_storage(book) if others and pages is not None else ():
            pins = book.tickets.open[number].pins
            others -= any(at == slot and pages[0] in held for at, held in pins)  # type: ignore[index]
        if others > 0:
            return True
    return False


def open_storage(book: Book, kind: type = object) -> list[FlightId]:
    """The actions for storage in flight, of one kind or of all."""
    return [
        number
        for number, ticket in book.tickets.open.items()
        if type(ticket.action) in ACTIONS and isinstance(ticket.action, kind)
    ]
