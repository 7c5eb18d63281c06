"""An admitted request has all pages that it needs."""

from __future__ import annotations

from hicache.core.actions import Granted, Prefill, Refused
from hicache.core.events import ContinueWanted, PagesWanted, PrefillDone
from hicache.core.view import CoreView
from invariants.base import LIVENESS, Check
from invariants.books.book import Book
from invariants.books.story import request


class NoOom(Check):
    name = "NO-OOM"
    sentence = (
        "The table of a running request always covers its prompt and its computed tokens; a pass "
        "has every page that it reads and writes of every component; no chunk lacks pages of full "
        "attention."
    )
    kind = LIVENESS
    watches = (Prefill, Granted, Refused)

    def see(self, book: Book, item: Prefill | Granted | Refused, view: CoreView) -> None:
        if type(item) is Refused:
            chunk = type(book.event) is ContinueWanted or type(book.event) is PrefillDone
            if chunk and not book.index_of(item.component):
                self.fail(
                    f"{type(book.event).__name__} of request {item.request} was refused "
                    f"({item.reason})",
                    request(item.request),
                )
            return
        req = book.requests.by_id.get(item.request)
        if req is None:
            return
        event = book.event
        if type(item) is Prefill:
            least = max(item.end_token, req.length)
        else:
            least = event.length if type(event) is PagesWanted else req.computed_tokens
        room = len(item.tables[0]) * book.page_size  # type: ignore[union-attr]
        if room < least or len(req.tables[0]) != len(item.tables[0]):  # type: ignore[union-attr]
            self.fail(
                f"request {req.id}: its table holds {room} tokens, expected at least {least}; "
                f"the core has {len(req.tables[0])} pages for it",
                request(req.id),
            )
        if type(item) is Prefill:
            self._covered(book, item)

    def _covered(self, book: Book, item: Prefill) -> None:
        """A pass must have the pages of its first token's window and the pages that it writes."""
        positional = [kind for kind in book.kinds if kind.positional]
        for kind, table in zip(positional, item.tables, strict=True):
            least = max(0, item.start_token - kind.window + 1) // book.page_size
            most = -(-item.end_token // book.page_size)
            lacking = table[least:most] < 0 if kind.at else table[:0]
            if lacking.any() or len(table) < most:
                at = least + int(lacking.argmax()) if lacking.any() else len(table)
                self.fail(
                    f"request {item.request}: a pass over {item.start_token}..{item.end_token} "
                    f"needs {kind.name} pages {least}..{most}, page {at} is not there",
                    request(item.request),
                )
        for state in item.states:
            if state.working < 0:
                self.fail(
                    f"request {item.request}: a pass without a working {state.component} state",
                    request(item.request),
                )


def check() -> NoOom:
    return NoOom()
