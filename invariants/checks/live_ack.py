"""Each action has exactly one reply."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Backup, Delete, Fetch, Load, Lookup, Prefill, Store
from hicache.core.events import (
    BackupDone,
    DeleteDone,
    FetchDone,
    LoadDone,
    LookupDone,
    PrefillDone,
    StoreDone,
)
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.story import flight

_ACTION_OF: dict[Any, type] = {
    LoadDone: Load,
    BackupDone: Backup,
    PrefillDone: Prefill,
    LookupDone: Lookup,
    FetchDone: Fetch,
    StoreDone: Store,
    DeleteDone: Delete,
}


class LiveAck(Check):
    name = "LIVE-ACK"
    sentence = (
        "Every action has its own flight number, is answered exactly once by its own kind of "
        "reply, and is in flight until then."
    )
    kind = LIVENESS
    watches = (*_ACTION_OF, *_ACTION_OF.values())

    def issue(self, book: Book, item: object, view: CoreView) -> None:
        number: int = item.flight  # type: ignore[attr-defined]
        wanted = _ACTION_OF.get(type(item))
        if wanted is None:
            settled = book.tickets.settled
            if number <= settled or any(number == one.id for one in book.tickets.fresh):
                self.fail(
                    f"flight {number}: expected a number above {settled}, not used in this "
                    f"operation",
                    flight(number),
                )
            return
        ticket = book.tickets.open.get(number)
        if ticket is not None and type(ticket.action) is not wanted:
            self.fail(
                f"flight {number}: expected the reply to a {type(ticket.action).__name__}, found "
                f"{type(item).__name__}",
                flight(number),
            )

    def see(self, book: Book, item: object, view: CoreView) -> None:
        if type(item) in _ACTION_OF and book.answered is None:
            number: int = item.flight  # type: ignore[attr-defined]
            self.fail(f"flight {number} was answered, but was not open", flight(number))

    def totals(self, book: Book, view: CoreView) -> None:
        if book.history and len(view.flights) != len(book.tickets.open):
            odd = sorted(view.flights.keys() ^ book.tickets.open.keys())
            self.fail(
                f"in flight: expected {len(book.tickets.open)}, found {len(view.flights)}; first "
                f"difference flight {odd[0]}",
                flight(odd[0]),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        odd = sorted(view.flights.keys() ^ book.tickets.open.keys())
        if odd:
            self.fail(f"flight {odd[0]} is in flight for only one side", flight(odd[0]))
        self._promises(book, view)

    def _promises(self, book: Book, view: CoreView) -> None:
        """Host pages that loads are to give up are those that loads in flight read."""
        if not book.config.exchange_pages:
            return
        for kind in book.kinds:
            loads = [one for one in book.tickets.open.values() if type(one.action) is Load]
            moves = [move for one in loads for move in one.moves if move.at == kind.at]
            expected, found = sum(len(move.source) for move in moves), view.giving_up(kind.at)
            if expected != found:
                self.fail(f"host {kind.name}: expected {expected} pages given up, found {found}")

    def still(self, book: Book, view: CoreView) -> None:
        self._promises(book, view)
        writing_back = sum(view.writing_back(kind.at) for kind in book.kinds)
        if view.flights or writing_back:
            self.fail(
                f"expected nothing in flight at quiescence, found {len(view.flights)} flights and "
                f"{writing_back} pages being written back"
            )


def check() -> LiveAck:
    return LiveAck()
