"""Actions and their replies, and who may read or write a page meanwhile."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Backup, Fetch, Load, Prefill, Store
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.pages import PageBook, nothing
from invariants.books.tickets import ACTION_OF


class LiveAck(Check):
    name = "LIVE-ACK"
    sentence = (
        "Every action has its own flight number, is answered exactly once by its own kind of "
        "reply, and is in flight until then."
    )
    kind = LIVENESS
    watches = (*ACTION_OF, *ACTION_OF.values())

    def issue(self, book: Book, item: object, view: CoreView) -> None:
        number: int = item.flight  # type: ignore[attr-defined]
        wanted = ACTION_OF.get(type(item))
        if wanted is None:
            settled = book.tickets.settled
            if number <= settled or any(number == one.id for one in book.tickets.fresh):
                self.fail(
                    f"flight {number}: expected a number above {settled}, not used in this "
                    f"operation",
                    story.flight(number),
                )
            return
        ticket = book.tickets.open.get(number)
        if ticket is not None and type(ticket.action) is not wanted:
            self.fail(
                f"flight {number}: expected the reply to a {type(ticket.action).__name__}, found "
                f"{type(item).__name__}",
                story.flight(number),
            )

    def see(self, book: Book, item: object, view: CoreView) -> None:
        if type(item) in ACTION_OF and book.answered is None:
            number: int = item.flight  # type: ignore[attr-defined]
            self.fail(f"flight {number} was answered, but was not open", story.flight(number))

    def totals(self, book: Book, view: CoreView) -> None:
        if book.history and len(view.flights) != len(book.tickets.open):
            odd = sorted(view.flights.keys() ^ book.tickets.open.keys())
            self.fail(
                f"in flight: expected {len(book.tickets.open)}, found {len(view.flights)}; first "
                f"difference flight {odd[0]}",
                story.flight(odd[0]),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        odd = sorted(view.flights.keys() ^ book.tickets.open.keys())
        if odd:
            self.fail(f"flight {odd[0]} is in flight for only one side", story.flight(odd[0]))
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


_Writing: TypeAlias = Load | Backup | Prefill | Fetch | Store


class HappensBeforeWrite(Check):
    name = "HB-WRITE"
    sentence = (
        "An action writes only pages that no unanswered action reads or writes, except that a pass "
        "goes on where an unanswered pass of its request ends."
    )
    watches = (Load, Backup, Prefill, Fetch, Store)

    def issue(self, book: Book, item: _Writing, view: CoreView) -> None:
        before = book.passes_before(item)
        for use in book.uses:
            pages = book.pool(Tier.DEVICE, use.at)
            busy = pages.busy[use.writes]
            for own in (one for ticket in before for one in ticket.uses if one.at == use.at):
                harmless = ~np.isin(use.writes, own.writes)
                harmless[:1] = True  # the page where it goes on, or the working state
                busy = busy - (np.isin(use.writes, own.busy) & harmless)
            self._nobody_else(book, item, pages, use.writes, busy)
        tier = Tier.DEVICE if type(item) is Load else Tier.HOST
        for move in book.moves:
            pages = book.pool(tier, move.at)
            self._nobody_else(book, item, pages, move.target, pages.busy[move.target])

    def _nobody_else(
        self, book: Book, item: _Writing, pages: PageBook, target: Pages, busy: NDArray[np.int32]
    ) -> None:
        if not nothing(busy):
            at = int(target[int((busy > 0).argmax())])
            others = [
                ticket.id
                for ticket in book.tickets.open.values()
                if any(move.at == pages.component and _uses(at, move[1:3]) for move in ticket.moves)
                or any(use.at == pages.component and _uses(at, use[1:]) for use in ticket.uses)
            ]
            self.fail(
                f"flight {item.flight} writes {pages.where} page {at}: expected 0 unanswered "
                f"actions on it, found {int(busy.max())} (flights {others})",
                story.page(pages, at),
                story.flight(item.flight),
            )


def _uses(page: int, arrays: tuple[Pages, ...]) -> bool:
    return any(page in pages for pages in arrays)


_Reading: TypeAlias = Load | Backup | Prefill | Fetch | Store


class ReadAfterArrive(Check):
    name = "READ-AFTER-ARRIVE"
    sentence = (
        "A page that an unanswered action writes is read only by a prefill that waits for that "
        "action, or goes on where it ends."
    )
    watches = (Load, Backup, Prefill, Fetch, Store)

    def issue(self, book: Book, item: _Reading, view: CoreView) -> None:
        after = item.after if type(item) is Prefill else ()
        after += tuple(one.id for one in book.passes_before(item))
        for use in book.uses:
            self._arrived(item, after, book.pool(Tier.DEVICE, use.at), use.reads)
        tier = Tier.DEVICE if type(item) is Backup else Tier.HOST
        for move in book.moves:
            self._arrived(item, after, book.pool(tier, move.at), move.source)

    def _arrived(
        self,
        item: _Reading,
        after: tuple[int, ...],
        pages: PageBook,
        source: Pages,
    ) -> None:
        writers = pages.writer[source]
        if nothing(writers):
            return
        awaited = writers > 0
        for known in after:
            awaited &= writers != known
        if awaited.any():
            at = int(awaited.argmax())
            self.fail(
                f"flight {item.flight} reads {pages.where} page {source[at]} after "
                f"{list(after)}: expected also after flight {writers[at]}, which writes it",
                story.page(pages, int(source[at])),
                story.flight(int(writers[at])),
            )


CHECKS = (LiveAck, HappensBeforeWrite, ReadAfterArrive)
