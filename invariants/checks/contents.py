"""The content of pages, represented by tags that move with the copies."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Cached, Granted, Prefill
from hicache.core.errors import About
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import WRONG_BYTES, Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.pages import NODE, PageBook, same
from invariants.books.requests import RequestMirror
from invariants.books.tags import Tags


class Bytes(Check):
    name = "BYTES"
    sentence = (
        "Every cached page, and every page that a request reads, holds the bytes of its prefix."
    )
    kind = WRONG_BYTES
    watches = (Prefill, Cached, Granted)
    of_changes = True

    def totals(self, book: Book, view: CoreView) -> None:
        for pages in book.changed if book.history else ():
            for claimed, code in pages.claimed:
                if code & 3 == NODE:
                    mirror = book.nodes.by_id.get(code >> 2)
                    if mirror is not None and len(mirror.tags):
                        tags = mirror.tags if pages.positional else mirror.tags[-1:]
                        if len(tags) == len(claimed):
                            self._compare(pages, claimed, tags, "node", mirror.id)

    def see(self, book: Book, item: Prefill | Cached | Granted, view: CoreView) -> None:
        """Compares the pages that a pass reads, or that a request shares after an insertion."""
        req = book.requests.by_id.get(item.request)
        if req is None:
            return
        if type(item) is Prefill:
            known = min(item.start_token, req.computed_tokens)  # the rest is being computed
            depth = start = min(known // book.page_size, len(req.tags))
            awaited = book.tickets.open.get(req.load)
            if awaited is not None and not awaited.landed:
                depth = len(req.shared_pages)
            self._states(book, req, item)
        else:
            depth = start = min(req.computed_tokens // book.page_size, len(req.tags))
        self._compare(book.device, item.tables[0][:depth], req.tags[:depth], "request", req.id)
        tables = iter(item.tables[1:])
        for kind in book.kinds[1:]:
            if kind.positional:
                pages, held = book.pages[kind.at], next(tables)[:start]
                here = held >= 0
                here[here] = pages.writer[held[here]] == 0
                self._compare(pages, held[here], req.tags[:start][here], "request", req.id)

    def _states(self, book: Book, req: RequestMirror, item: Prefill) -> None:
        """A pass must continue from the state of the prefix before it."""
        kinds = [kind for kind in book.kinds if not kind.positional]
        before = book.passes_before(item)
        read = before[-1].action.end_token if before else req.working  # type: ignore[union-attr]
        for kind, state in zip(kinds, item.states, strict=True):
            pages, start = book.pages[kind.at], item.start_token
            wrong = [one for one, _ in state.checkpoints if not start < one <= item.end_token]
            if wrong:
                self.fail(
                    f"request {req.id}: a pass over {start}..{item.end_token} is to store the "
                    f"{kind.name} state of {wrong[0]} tokens",
                    story.request(req.id),
                )
            if state.source < 0:
                if start != read:
                    self.fail(
                        f"request {req.id}: a pass from token {start} goes on with a {kind.name} "
                        f"state that has read {read}",
                        story.request(req.id),
                    )
            elif start % book.page_size or not 0 < start // book.page_size <= len(req.tags):
                self.fail(
                    f"request {req.id}: a pass from token {start} copies a {kind.name} state, "
                    f"which no boundary has there",
                    story.request(req.id),
                )
            elif not pages.writer[state.source]:
                depth = start // book.page_size
                source = np.array([state.source], dtype=np.int64)
                self._compare(pages, source, req.tags[depth - 1 : depth], "request", req.id)

    def audit(self, book: Book, view: CoreView) -> None:
        for slot, pages in enumerate(book.pages):
            held = [
                (one, mirror.tags if pages.positional else mirror.tags[-1:], mirror.id)
                for mirror in book.nodes.by_id.values()
                if (one := mirror.pages[slot]) is not None
            ]
            if held:
                found = pages.content[np.concatenate([one for one, _, _ in held])]
                if not same(found, np.concatenate([tags for _, tags, _ in held])):
                    for one, tags, whose in held:
                        self._compare(pages, one, tags, "node", whose)

    def _compare(self, pages: PageBook, held: Pages, tags: Tags, kind: str, whose: int) -> None:
        found = pages.content[held]
        if same(found, tags):
            return
        wrong = found != tags if len(found) == len(tags) else np.ones(1, dtype=bool)
        at = int(wrong.argmax())
        number = int(held[at])
        self.fail(
            f"{pages.where} page {number}, page {at} of {kind} {whose}: expected the "
            f"bytes tagged {int(tags[at]):016x}, found {int(found[at]):016x}"
            f"{' (nobody wrote it)' if not found[at] else ''}",
            story.page(pages, number),
            About(kind, whose),
        )


CHECKS = (Bytes,)
