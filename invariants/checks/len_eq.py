"""Digests, pages and depths of what storage is asked for agree."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Evicted, Fetch, Lookup, Piece, Store
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.kinds import EVERYTHING
from invariants.books.story import flight


class LengthsEqual(Check):
    name = "LEN-EQ"
    sentence = (
        "Each piece of a fetch or store has one digest for each page; the pieces of a fetch are "
        "the longest runs of pages that the tree lacks of what a boundary at its end requires, in "
        "order, and no page more; a lookup names, for each component, how many pages before a "
        "boundary it requires."
    )
    watches = (Lookup, Fetch, Store)

    def issue(self, book: Book, item: Lookup | Fetch | Store, view: CoreView) -> None:
        if isinstance(item, Lookup):
            self._lookup(book, item)
            return
        last = (-1, -1)
        for piece in item.pieces:
            self._piece(book, item, piece)
            place = (book.index_of(piece.component), piece.first_page)
            if place <= last:
                self._wrong(
                    item, f"a piece of {piece.component} at page {piece.first_page} comes late"
                )
            last = (place[0], piece.first_page + len(piece.pages))
        if not item.pieces:
            self._wrong(item, "it has no pieces")
        if type(item) is Fetch:
            self._lacking(book, item)

    def _wrong(self, item: Any, what: str) -> None:
        self.fail(f"{type(item).__name__} {item.flight}: {what}", flight(item.flight))

    def _piece(self, book: Book, item: Fetch | Store, piece: Piece) -> None:
        pages, digests = len(piece.pages), len(piece.digests)
        kind = book.kinds[book.index_of(piece.component)]
        most = 1 if not kind.positional else pages
        capacity = book.pool(Tier.HOST, kind.at).capacity
        inside = pages and piece.pages.min() >= 0 and piece.pages.max() < capacity
        if kind.name != piece.component or not inside or digests != pages or pages > most:
            self._wrong(
                item,
                f"a piece of {piece.component} with {digests} digests and {pages} pages of "
                f"{capacity}; expected one digest for each page, at most {most} of them",
            )

    def _lookup(self, book: Book, item: Lookup) -> None:
        expected = tuple(0 if kind.need == EVERYTHING else kind.need for kind in book.kinds)
        if item.trailing_pages != expected:
            self._wrong(
                item,
                f"expected it to require the last {expected} pages, found {item.trailing_pages}",
            )
        if not item.digests or not 0 <= item.known_pages <= len(item.digests):
            self._wrong(item, f"{item.known_pages} of {len(item.digests)} pages are known")

    def _lacking(self, book: Book, item: Fetch) -> None:
        """The depths of its pieces are those that the tree lacks. Nothing else of this event
        changes what the tree has of them."""
        lookup = book.storage.looked_up(book.event)
        end = item.first_page + item.pages
        known = [] if lookup is None else lookup.prompt[:end].tolist()
        evicted = {  # to make room, after the pieces were chosen
            (book.index_of(one.component), tag)
            for one in book.outcomes
            if type(one) is Evicted
            for tag in book.pool(one.tier, book.index_of(one.component)).content[one.pages].tolist()
        }
        if len(known) < end or item.pages < 1:
            self._wrong(item, f"it ends at page {end}, of {len(known)} that may be reused")
        for kind in book.kinds if known else ():
            device = book.nodes.resident[kind.at]
            host = book.nodes.resident[book.width + kind.at]
            expected = [
                depth
                for depth in range(max(0, end - kind.need), end)
                if known[depth] not in device and known[depth] not in host
                if (kind.at, known[depth]) not in evicted
            ]
            found = [
                piece.first_page + step
                for piece in item.pieces
                if piece.component == kind.name
                for step in range(len(piece.pages))
            ]
            if expected != found:
                self._wrong(
                    item, f"expected it to bring {kind.name} pages {expected}, found {found}"
                )


def check() -> LengthsEqual:
    return LengthsEqual()
