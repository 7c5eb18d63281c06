"""Shared code of the checks of storage: the pages of a store by the node that has them now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hicache.core.actions import Store
from hicache.core.types import Tier
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import NODE
from invariants.books.tickets import Ticket


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
