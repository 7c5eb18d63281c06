"""Nothing is copied twice, and no copy is made to no use."""

from __future__ import annotations

from collections.abc import Iterator

from hicache.core.actions import Backup, Load
from hicache.core.events import BackupDone, LoadDone, PrefillDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import PageBook
from invariants.books.story import flight
from invariants.books.tickets import Move, Ticket
from invariants.checks._storage import locked_beside
from invariants.checks._victims import wanted


class CopyOnce(Check):
    name = "COPY-ONCE"
    sentence = (
        "No page is copied to a tier that has a copy of it or is getting one; what was copied is "
        "cached once it has arrived, unless the tree was flushed or host cannot keep the copy; an "
        "eviction writes back no more pages of full attention than it lacks, and none again whose "
        "write-back failed and which was not used since."
    )
    watches = (Backup, Load, BackupDone, LoadDone, PrefillDone)

    def __init__(self) -> None:
        super().__init__()
        self._forgotten = False  # the tree was flushed since the answered action began
        self._landed: set[int] = set()  # loads in flight that have landed
        # by component and tag, the last use of a page when its write-back failed
        self._failed: dict[tuple[int, int], int] = {}

    def issue(self, book: Book, item: object, view: CoreView) -> None:
        if type(item) is BackupDone or type(item) is LoadDone:
            self._forgotten = book.tickets.was_flushed(item.flight)

    def see(self, book: Book, item: object, view: CoreView) -> None:
        if type(item) is Backup or type(item) is Load:
            self._begun(book, book.tickets.open[item.flight])
            self._written_back(book, view)
            if type(item) is Backup and not book.writes.threshold:
                self._not_in_vain(book, book.tickets.open[item.flight])
        elif type(item) is BackupDone and not self._forgotten:
            if item.ok:
                self._backed_up(book, book.answered)
            elif not book.writes.threshold:
                self._failed.update(self._uses(book, book.answered))
        elif type(item) is LoadDone:
            if item.ok and not self._forgotten and item.flight not in self._landed:
                self._loaded(book, book.answered)
            self._landed.discard(item.flight)
        elif type(item) is PrefillDone and book.answered is not None:
            for number in book.answered.action.after:  # type: ignore[union-attr]
                ticket = book.tickets.open.get(number)
                if ticket is not None and ticket.landed and number not in self._landed:
                    self._landed.add(number)
                    self._loaded(book, ticket)

    def _begun(self, book: Book, ticket: Ticket) -> None:
        """Nothing that it copies is there already, or under way."""
        source, target = ticket.tiers
        for move in ticket.moves:
            there = book.nodes.resident[target * book.width + move.at]
            tags = book.pool(source, move.at).content[move.source].tolist()
            coming = set(self._under_way(book, ticket, move))
            for tag, page in zip(tags, move.source.tolist(), strict=True):
                if tag in there or tag in coming:
                    self.fail(
                        f"flight {ticket.id} copies {book.pool(source, move.at).where} page {page} "
                        f"to {target.name.lower()}, which {'has' if tag in there else 'is getting'}"
                        " a copy",
                        flight(ticket.id),
                    )

    def _under_way(self, book: Book, ticket: Ticket, move: Move) -> Iterator[int]:
        """Tags of pages of this component that other copies bring to the same tier."""
        source, _ = ticket.tiers
        for other in book.tickets.open.values():
            if other is ticket or type(other.action) is not type(ticket.action) or not other.pins:
                continue
            for one in other.moves if not other.landed else ():
                if one.at == move.at:
                    yield from book.pool(source, one.at).content[one.source].tolist()

    def _written_back(self, book: Book, view: CoreView) -> None:
        begun = view.writing_back(0) - book.writing_back_before[0].most
        if begun > 0 and begun > wanted(book, 0):
            self.fail(
                f"{type(book.event).__name__}: {begun} pages are being written back for an "
                f"eviction that lacks {wanted(book, 0)}",
                *(flight(one.id) for one in book.tickets.fresh),
            )

    def _not_in_vain(self, book: Book, ticket: Ticket) -> None:
        """What host did not take is dropped, not copied again, unless it was used meanwhile."""
        for (at, tag), use in self._uses(book, ticket):
            if self._failed.pop((at, tag), -1) == use:
                self.fail(
                    f"flight {ticket.id} writes a page of {book.kinds[at].name} back whose last "
                    f"write-back failed, and which was not used since",
                    flight(ticket.id),
                )

    def _uses(self, book: Book, ticket: Ticket | None) -> Iterator[tuple[tuple[int, int], int]]:
        """((component, tag), last use of its node) for every page that a backup reads."""
        for move in ticket.moves if ticket is not None else ():
            pages = book.pages[move.at]
            owners = (pages.owner[move.source] >> 2).tolist()
            for owner, tag in zip(owners, pages.content[move.source].tolist(), strict=True):
                mirror = book.nodes.by_id.get(owner)
                if mirror is not None:
                    yield (move.at, tag), mirror.use[0]

    def _loaded(self, book: Book, ticket: Ticket | None) -> None:
        """What it brought is on device, where host still has it."""
        for move in ticket.moves if ticket is not None else ():
            here = book.nodes.resident[move.at]
            there = book.nodes.resident[book.width + move.at]
            for tag, page in self._arrived(book.pages[move.at], move):
                if tag in there and tag not in here:
                    self._wasted(ticket, book.pages[move.at], page)

    def _backed_up(self, book: Book, ticket: Ticket | None) -> None:
        """What it brought is on host, where device still has it."""
        for move in ticket.moves if ticket is not None else ():
            here = book.nodes.resident[move.at]
            there = book.nodes.resident[book.width + move.at]
            owner = book.pages[move.at].owner
            host = book.pool(Tier.HOST, move.at)
            for at, (tag, page) in enumerate(self._arrived(host, move)):
                if tag in there or tag not in here:
                    continue
                mirror = book.nodes.by_id.get(int(owner[move.source[at]]) >> 2)
                if mirror is not None and not _has_no_place(book, mirror, move.at):
                    self._wasted(ticket, host, page)

    def _arrived(self, pages: PageBook, move: Move) -> Iterator[tuple[int, int]]:
        yield from zip(pages.content[move.target].tolist(), move.target.tolist(), strict=True)

    def _wasted(self, ticket: Ticket | None, pages: PageBook, page: int) -> None:
        number = ticket.id if ticket is not None else 0
        self.fail(
            f"flight {number} has copied to {pages.where} page {page}, and no node has the copy",
            flight(number),
        )


def _has_no_place(book: Book, mirror: NodeMirror, at: int) -> bool:
    """Whether a copy of this node that arrives on host cannot be kept: its parent, or its own page
    of full attention, is not there, or a lock above or beside it would keep it from eviction."""
    host = book.width
    if at:
        return bool(book.writes.contiguous) and mirror.pages[host] is None
    below = (one for one in book.nodes.by_id.values() if one.parent is mirror)
    if locked_beside(book, mirror) or any(locked_beside(book, one) for one in below):
        return True
    above = mirror.parent
    without = above is not None and above.parent is not None and above.pages[host] is None
    return bool(book.writes.contiguous) and without


def check() -> CopyOnce:
    return CopyOnce()
