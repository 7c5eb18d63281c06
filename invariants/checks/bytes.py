"""Contents, as tags that move along with the copies."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Cached, Granted, Prefill
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from invariants.base import WRONG_BYTES, Check
from invariants.book import Book
from invariants.pages import NODE, PageBook
from invariants.story import node, page, request
from invariants.tags import Tags


class Bytes(Check):
    name = "BYTES"
    sentence = (
        "Every cached page, and every page that a request reads, holds the bytes of the prefix "
        "that it stands for."
    )
    kind = WRONG_BYTES
    watches = (Prefill, Cached, Granted)

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.pages:
            for claimed, code in pages.claimed:
                if code & 3 == NODE:
                    shadow = book.nodes.by_id.get(code >> 2)
                    if shadow is not None and len(shadow.tags) == len(claimed) and book.history:
                        self._compare(pages, claimed, shadow.tags, f"node {shadow.id}")

    def see(self, book: Book, item: Prefill | Cached | Granted, view: CoreView) -> None:
        """What a pass reads, and what the tree and the request agree to share."""
        seat = book.seats.by_id.get(item.request)
        if seat is None:
            return
        if type(item) is Prefill:
            depth = min(item.start // book.page_size, len(seat.tags))
            awaited = book.tickets.open.get(seat.load)
            if awaited is not None and not awaited.landed:
                depth = len(seat.shared)
        else:
            depth = min(seat.computed // book.page_size, len(seat.tags))
        self._compare(book.device, item.table[:depth], seat.tags[:depth], f"request {seat.id}")

    def audit(self, book: Book, view: CoreView) -> None:
        for shadow in book.nodes.by_id.values():
            for tier, held in enumerate(shadow.pages):
                if held is not None:
                    self._compare(book.pages[tier], held, shadow.tags, f"node {shadow.id}")

    def _compare(self, pages: PageBook, held: Pages, tags: Tags, whose: str) -> None:
        found = pages.content[held]
        if len(found) == len(tags) and not np.count_nonzero(found != tags):
            return
        wrong = found != tags if len(found) == len(tags) else np.ones(1, dtype=bool)
        at = int(wrong.argmax())
        number = int(held[at])
        kind, name = whose.split()
        about = node(int(name)) if kind == "node" else request(int(name))
        self.fail(
            f"{Tier(pages.tier).name.lower()} page {number}, page {at} of {whose}: expected the "
            f"bytes tagged {int(tags[at]):016x}, found {int(found[at]):016x}"
            f"{' (nobody wrote it)' if not found[at] else ''}",
            page(pages.tier, number),
            about,
        )


def check() -> Bytes:
    return Bytes()
