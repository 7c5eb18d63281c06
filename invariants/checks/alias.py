"""Page arrays are read-only snapshots."""

from __future__ import annotations

from typing import TypeAlias

from hicache.core.actions import Backup, Cached, Fetch, Granted, Load, Prefill, Store
from hicache.core.errors import About
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.pages import FLIGHT, KINDS, name_of
from invariants.books.story import flight, request

_WithPages: TypeAlias = Load | Backup | Prefill | Granted | Cached | Fetch | Store


class Alias(Check):
    name = "ALIAS"
    sentence = (
        "No page array of a node, a request or an action can be written through any name, and a "
        "table does not change after it was handed out."
    )
    watches = (Load, Backup, Prefill, Granted, Cached, Fetch, Store)

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.changed:
            for claimed, code in pages.claimed:
                if code & 3 != FLIGHT and _writable(claimed):
                    self.fail(
                        f"pages of {name_of(code)}: expected read-only, found writable",
                        About(KINDS[code & 3], code >> 2),
                    )

    def see(self, book: Book, item: _WithPages, view: CoreView) -> None:
        arrays = None
        if type(item) is Load or type(item) is Backup:
            arrays = [pages for copy in item.copies for pages in (copy.source, copy.target)]
        elif type(item) is Fetch or type(item) is Store:
            arrays = [piece.pages for piece in item.pieces]
        if arrays is not None:
            if any(map(_writable, arrays)):
                number: int = item.flight  # type: ignore[union-attr]
                self.fail(f"flight {number}: its pages are writable", flight(number))
            return
        about = request(item.request)  # type: ignore[union-attr]
        tables = item.tables  # type: ignore[union-attr]
        if any(map(_writable, tables)):
            self.fail(f"a table of request {item.request} is writable", about)  # type: ignore[union-attr]
        req = book.requests.by_id.get(item.request)  # type: ignore[union-attr]
        if req is not None and (not req.handed or req.handed[0][0] is not tables[0]):
            self._unchanged(req.handed, about)
            req.handed = tuple((table, table.tobytes()) for table in tables)

    def audit(self, book: Book, view: CoreView) -> None:
        for req in book.requests.by_id.values():
            self._unchanged(req.handed, request(req.id))

    def _unchanged(self, handed: tuple[tuple[Pages, bytes], ...], about: About) -> None:
        if any(table.tobytes() != copy for table, copy in handed):
            self.fail(
                f"the table handed to request {about.number} changed after it was handed out",
                about,
            )


def _writable(pages: Pages) -> bool:
    base = pages.base
    return pages.flags.writeable or (base is not None and base.flags.writeable)


def check() -> Alias:
    return Alias()
