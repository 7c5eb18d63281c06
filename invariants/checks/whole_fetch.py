"""Fetches make complete boundaries of what has arrived."""

from __future__ import annotations

from hicache.core.actions import Evicted, Fetch, Prefetched
from hicache.core.events import FetchDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import NODE
from invariants.books.pins import known_path
from invariants.books.reference import find
from invariants.books.story import flight, page, request
from invariants.books.tags import Tags
from invariants.books.tickets import Ticket
from invariants.reasons import Reason

from ._storage import locked_beside

Place = tuple[int, int]  # component and depth in pages


class WholeFetch(Check):
    name = "WHOLE-FETCH"
    sentence = (
        "Of a fetch, the pages are cached that arrived of every component that a boundary "
        "requires, as a leading run, or none of them, and nothing behind them; what a request is "
        "told to have been fetched can be matched."
    )
    watches = (FetchDone,)

    def __init__(self) -> None:
        super().__init__()
        self._forgotten = False  # the tree was flushed since the fetch began

    def issue(self, book: Book, item: FetchDone, view: CoreView) -> None:
        self._forgotten = item.flight in book.storage.flushed

    def see(self, book: Book, item: FetchDone, view: CoreView) -> None:
        ticket = book.answered
        action = ticket.action if ticket is not None else None
        if ticket is None or type(action) is not Fetch:
            return
        whole = item.pages == action.pages
        upto = action.first_page + (item.pages if whole or book.width == 1 else 0)
        upto = 0 if self._forgotten else upto
        lost = self._lost(book, item, ticket, upto)
        self._matched(book, item, action, 0 if lost else upto)
        if lost:
            self.excuse(self._not_taken(book, item, ticket, upto, lost))

    def _lost(self, book: Book, item: FetchDone, ticket: Ticket, upto: int) -> list[Place]:
        """The pages before `upto` that arrived, and that host does not have."""
        lost: list[Place] = []
        for move in ticket.moves:
            host = book.pool(Tier.HOST, move.at)
            cached = host.owner[move.target] & 3 == NODE
            beyond = move.target[cached & (move.depths >= upto)]
            if len(beyond):
                self.fail(
                    f"flight {item.flight} brought {item.pages} pages: expected nothing of them "
                    f"cached from page {upto} on, found {host.where} page {beyond[0]}",
                    page(host, int(beyond[0])),
                    flight(item.flight),
                )
            there = book.nodes.resident[book.width + move.at]
            pairs = zip(move.depths.tolist(), move.tags.tolist(), strict=True)
            lost += [(move.at, at) for at, tag in pairs if at < upto and tag not in there]
        return lost

    def _matched(self, book: Book, item: FetchDone, action: Fetch, upto: int) -> None:
        """What a request was told to have been fetched can be matched now, and is everything that
        arrived if host has all of that."""
        ended = book.storage.ended
        for one in book.outcomes if ended is not None else ():
            if type(one) is not Prefetched or one.request != book.storage.owner(ended):  # type: ignore[arg-type]
                continue
            known = ended.prompt.tolist()  # type: ignore[union-attr]
            told, host = one.first_page + one.fetched_pages, book.nodes.resident[book.width]
            end = upto if all(tag in host for tag in known[one.first_page : upto]) else 0
            for depth, wanted in ((told, one.fetched_pages > 0), (end, end > told)):
                best = find(known[:depth], book.nodes.resident, book.kinds).best
                if wanted and (best == depth) != (depth == told):
                    self.fail(
                        f"request {one.request} was told of {one.fetched_pages} pages from page "
                        f"{one.first_page} on; of {depth} pages, {best} can be matched",
                        request(one.request),
                        flight(item.flight),
                    )

    def _not_taken(
        self, book: Book, item: FetchDone, ticket: Ticket, upto: int, lost: list[Place]
    ) -> Reason:
        """Why the tree did not take pages that arrived."""
        prompt: Tags = ticket.prompt[:upto]
        if any(type(one) is Evicted for one in book.outcomes):
            return Reason.THINNED
        present = [set(tags) for tags in book.nodes.resident]
        for move in ticket.moves:
            arrived = move.tags[move.depths < upto].tolist()
            present[book.width + move.at].update(arrived)
        if find(prompt.tolist(), present, book.kinds).best < upto:
            return Reason.LOST_PREFIX
        first, host = min(at for _, at in lost), book.nodes.resident[book.width]
        above = [at for at in range(first + 1) if int(prompt[at]) not in host]
        if book.writes.contiguous and any((0, at) not in lost for at in above):
            return Reason.NOT_CONTIGUOUS
        path = [known.mirror for known in known_path(book.nodes, prompt)]
        below = [
            one for mirror in path for one in (mirror.node.children if mirror.node else {}).values()
        ]
        beside = [*path, *(book.nodes.by_id[one.id] for one in below)]
        if not any(locked_beside(book, mirror) for mirror in beside):
            self.fail(
                f"flight {item.flight}: {len(lost)} pages arrived before page {upto} and were "
                "dropped; expected them on host",
                flight(item.flight),
            )
        return Reason.LOCKED_BESIDE


def check() -> WholeFetch:
    return WholeFetch()
