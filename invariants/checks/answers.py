"""Every event is answered with the outcomes of its contract."""

from __future__ import annotations

from typing import Any, get_args

from hicache.core.actions import (
    NO_REQUEST,
    Admitted,
    Cached,
    Delete,
    Evicted,
    Granted,
    Load,
    Lookup,
    Matched,
    Outcome,
    Prefill,
    Refused,
    Released,
    Restarted,
    StorageDetached,
    Store,
)
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DeleteDone,
    DetachWanted,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
    StorageAttached,
    StoreDone,
    TimePassed,
    UnpinWanted,
)
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.replies import STORAGE_REPLIES
from invariants.books.story import flight, named_by, page, request
from invariants.checks._storage import ACTIONS, MAY_BRING, OUTCOMES, open_storage
from invariants.checks._victims import book_of, demoted
from invariants.reasons import Reason

_NOTICES = {Matched, Admitted, Prefill, Refused, Granted, Cached, Released, Restarted}
_PAGED = {"tables", "copies", "states", "pieces"}
_PAGELESS = {kind for kind in get_args(Outcome) if _PAGED.isdisjoint(kind._fields)}
_ONE_OF: dict[type, tuple[tuple[type, ...], ...]] = {
    Arrived: ((Matched,),),
    MatchWanted: ((Matched,),),
    AdmitWanted: ((Admitted, Prefill), (Refused,)),
    ContinueWanted: ((Prefill,), (Refused,)),
    PagesWanted: ((Granted,), (Refused,)),
    Finished: ((Released,),),
    Aborted: ((Released,),),
    Retracted: ((Released,),),
    BackupDone: ((),),
    EvictWanted: ((),),
    Flushed: ((), (Refused,)),
    PrefetchLimitReached: ((),),
    StorageAttached: ((), (Refused,)),
    DetachWanted: ((),),
    TimePassed: ((),),
    PinWanted: ((),),
    UnpinWanted: ((),),
    LookupDone: ((),),
    FetchDone: ((),),
    StoreDone: ((),),
    DeleteDone: ((),),
}


class Answers(Check):
    name = "ANSWERS"
    sentence = (
        "An event is answered by exactly the outcomes that its contract names, for its own "
        "request; a pass goes as far as its chunk or its pools allow, and waits for the load that "
        "it reads; a refusal reports the free pages and the request to retract correctly, an "
        "eviction the last use of its pages and whether a copy stays; page numbers are read-only."
    )
    watches = (*_ONE_OF, PrefillDone, LoadDone)

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[int, None] = {}  # admitted requests, in order of admission

    def see(self, book: Book, item: Any, view: CoreView) -> None:
        notices = [one for one in book.outcomes if type(one) in _NOTICES]
        kinds = tuple(type(one) for one in notices)
        expected = _ONE_OF.get(type(item)) or (self._of_reply(book, item),)
        number = _whose(book, item)
        if kinds not in expected:
            wanted = " or ".join("+".join(one.__name__ for one in way) for way in expected)
            found = "+".join(one.__name__ for one in kinds)
            self.fail(
                f"{type(item).__name__} of request {number}: expected {wanted or 'nothing'}, found "
                f"{found or 'nothing'}",
                request(number),
            )
        for one in notices:
            if one.request != number:  # type: ignore[union-attr]
                self.fail(
                    f"{type(one).__name__} of request {one.request}, expected {number}",  # type: ignore[union-attr]
                    request(number),
                )
            if type(one) is Refused:
                self._refused(book, item, one)
            elif type(one) is Prefill:
                self._pass(book, item, one)
        self._of_storage(book, item)
        self._loads(book, notices)
        self._frozen(book)
        self._evicted(book)
        self._admit(notices)

    def _of_storage(self, book: Book, item: Any) -> None:
        """What concerns storage comes with the events that may bring it, and only while storage is
        attached; that it was detached is the last thing that is said of it.
        """
        found = [one for one in book.outcomes if type(one) in OUTCOMES]
        may = MAY_BRING.get(type(item), ())
        begun = [one for one in found if type(one) in ACTIONS]
        for one in found:
            deleting = type(one) in (Lookup, Store) and book.storage.deleting
            wanted = book.storage.attached and not deleting
            if type(one) not in may or (one in begun and not wanted):
                self.fail(
                    f"{type(item).__name__}: unexpected {type(one).__name__}, storage is attached: "
                    f"{book.storage.attached}, being deleted: {bool(book.storage.deleting)}",
                    *named_by(one),
                )
        flushed = type(item) is Flushed and item.storage and book.storage.attached
        asked = flushed and not any(type(one) is Refused for one in book.outcomes)
        if sum(type(one) is Delete for one in found) != asked:
            self.fail(f"{type(item).__name__}: expected storage to be deleted: {asked}")
        replies = type(item) is DetachWanted or type(item) in STORAGE_REPLIES
        last = replies and not book.storage.attached and not open_storage(book)
        told = [type(one) is StorageDetached for one in book.outcomes]
        if sum(told) != last or (last and not told[-1]):
            self.fail(
                f"{type(item).__name__}: expected the last action of a detached storage to have "
                f"ended: {last}, found that told {sum(told)} times"
            )

    def _of_reply(self, book: Book, item: PrefillDone | LoadDone) -> tuple[type, ...]:
        """Returns the outcomes expected for the reply of a pass or a load; none if its request is
        gone.
        """
        ticket = book.answered
        if ticket is None or ticket.request < 0:
            return ()
        if not item.ok:
            return (Restarted,)
        return (Cached,) if type(item) is PrefillDone else ()

    def _admit(self, notices: list[Any]) -> None:
        for one in notices:
            if type(one) is Admitted:
                self._running[one.request] = None
            elif type(one) in (Released, Restarted):
                self._running.pop(one.request, None)

    def _loads(self, book: Book, notices: list[Any]) -> None:
        reqs = [one for one in notices if type(one) is Admitted and any(one.loaded_pages)]
        loads = [one for one in book.outcomes if type(one) is Load]
        if len(reqs) != len(loads):
            self.fail(
                f"{len(loads)} loads are begun, expected {len(reqs)}",
                *(request(one.request) for one in reqs),
            )
        if not loads:
            return
        others = [
            one for one in book.tickets.open.values() if type(one.action) is Load and not one.landed
        ]
        sources = [(move.at, page) for one in others for move in one.moves for page in move.source]
        if len({*sources}) < len(sources):
            self.fail(
                f"{len(others)} loads are under way, and two of them bring the same page",
                *(flight(one.id) for one in others),
            )

    def _frozen(self, book: Book) -> None:
        """Page numbers in outcomes must be read-only, with -1 for no page."""
        for one in book.outcomes:
            if type(one) in _PAGELESS:
                continue
            tables = getattr(one, "tables", ())
            copies = getattr(one, "copies", ())
            pieces = getattr(one, "pieces", ())
            moved = (*(copy.source for copy in copies), *(piece.pages for piece in pieces))
            for pages in (*tables, *moved):
                if pages.flags.writeable or (len(pages) and pages.min() < -1):
                    self.fail(
                        f"{type(one).__name__}: expected read-only page numbers from -1 up, found "
                        f"{pages.tolist()[:8]}",
                        *named_by(one),
                    )
            for slots in getattr(one, "states", ()):
                told = slots.source >= 0 or slots.checkpoints
                least = min(slots.source, slots.working, *slots.checkpoint_slots)
                if least < -1 or (told and type(one) is not Prefill):
                    self.fail(
                        f"{type(one).__name__}: expected slots from -1 up, and copies only of a "
                        f"pass, found {slots}",
                        *named_by(one),
                    )

    def _evicted(self, book: Book) -> None:
        """A notice of an eviction tells when the pages were last used, before this operation or in
        it, and whether the node keeps a copy on host.
        """
        for one in book.outcomes:
            if type(one) is not Evicted or not len(one.pages):
                continue
            pages = book_of(book, one)
            giver = int(pages.giver[one.pages[0]])
            used = book.nodes.parted_use.get((giver, pages.component), -1)
            now = book.clock_before < one.last_use <= book.nodes.clock
            if not now and one.last_use != used:
                self.fail(
                    f"{pages.where} page {one.pages[0]}: expected to hear of its last use at tick "
                    f"{used}, found {one.last_use}",
                    page(pages, int(one.pages[0])),
                )
            if one.demoted != demoted(book, one):
                self.fail(
                    f"{pages.where} page {one.pages[0]}: demoted is {one.demoted}, and its copy on "
                    f"host is{'' if demoted(book, one) else ' not'} there",
                    page(pages, int(one.pages[0])),
                )

    def _refused(self, book: Book, item: Any, one: Refused) -> None:
        grows = type(item) in (ContinueWanted, PagesWanted) and one.reason == "no_pages"
        latest = next(reversed(self._running), NO_REQUEST) if grows else NO_REQUEST
        if one.preempt != latest:
            self.fail(
                f"refused ({one.reason}): expected request {latest} to be retracted, found "
                f"{one.preempt}",
                request(one.request),
            )
        index = book.index_of(one.component)
        if one.reason == "running":
            passes = sum(type(open_.action) is Prefill for open_ in book.tickets.open.values())
            if one.needed != max(len(self._running), passes):
                self.fail(
                    f"refused (running): {len(self._running)} requests are admitted and {passes} "
                    f"passes run, found {one.needed}"
                )
        room: int | None = 0 if one.reason == "running" else None
        if one.reason == "too_large":
            req = book.requests.by_id.get(one.request)
            pinned = book.wants.beside(req)
            room = book.pages[index].capacity - pinned
        elif type(item) in (ContinueWanted, PagesWanted):
            room = book.pages[index].available
        elif one.reason == "arriving":
            room = book.pages[index].free
        if room is not None and one.available != room:
            self.fail(
                f"refused ({one.reason}): expected {room} {one.component} pages to be had, found "
                f"{one.available}",
                request(one.request),
            )

    def _pass(self, book: Book, item: AdmitWanted | ContinueWanted, one: Prefill) -> None:
        req = book.requests.by_id.get(one.request)
        if req is None:
            return
        wanted = min(one.start_token + item.chunk, req.length)
        if one.start_token < one.end_token < wanted and _is_stopped(book, one):
            self.excuse(Reason.NO_PAGE_LEFT)
        elif one.end_token != wanted:
            self.fail(
                f"request {one.request}: expected a pass over {one.start_token}..{wanted}, found "
                f"it to end at {one.end_token}",
                request(one.request),
            )
        loads = tuple(
            number
            for number, ticket in book.tickets.open.items()
            if type(ticket.action) is Load and ticket.request == one.request and not ticket.landed
            if number == req.load
        )
        if one.after != loads:
            self.fail(
                f"request {one.request}: expected its pass to wait for {loads}, found {one.after}",
                request(one.request),
            )


def _is_stopped(book: Book, one: Prefill) -> bool:
    """Whether a pass ends where its pages of a window end, and no more can be had."""
    following, rest = divmod(one.end_token, book.page_size)
    tables = zip((kind for kind in book.kinds if kind.positional), one.tables, strict=True)
    return not rest and any(
        kind.at and not book.pages[kind.at].available and table[following] < 0
        for kind, table in tables
    )


def _whose(book: Book, item: Any) -> int:
    if type(item) in (PrefillDone, LoadDone):
        return book.answered.request if book.answered is not None else NO_REQUEST
    number: int = getattr(item, "request", NO_REQUEST)
    return number


def check() -> Answers:
    return Answers()
