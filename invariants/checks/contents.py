"""The content of pages, represented by tags that move with the copies."""

from __future__ import annotations

import numpy as np

from hicache.core.actions import Cached, Granted, Prefill
from hicache.core.errors import About
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import WRONG_BYTES, Check
from invariants.shadow import story
from invariants.shadow.pages import KIND_BITS, KIND_MASK, NODE, PageShadow, same
from invariants.shadow.requests import RequestRecord
from invariants.shadow.shadow import Shadow
from invariants.shadow.tags import Tags


class Bytes(Check):
    name = "BYTES"
    sentence = (
        "Every cached page, and every page that a request reads, holds the bytes of its prefix."
    )
    kind = WRONG_BYTES
    items = (Prefill, Cached, Granted)
    of_changes = True

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        for pages in shadow.changed if shadow.history else ():
            for claimed, code in pages.claimed:
                if code & KIND_MASK == NODE:
                    record = shadow.nodes.by_id.get(code >> KIND_BITS)
                    if record is not None and len(record.tags):
                        tags = record.tags if pages.positional else record.tags[-1:]
                        if len(tags) == len(claimed):
                            self._compare(pages, claimed, tags, "node", record.id)

    def after(self, shadow: Shadow, item: Prefill | Cached | Granted, view: CoreView) -> None:
        """Compares the pages that a pass reads, or that a request shares after an insertion."""
        req = shadow.requests.by_id.get(item.request)
        if req is None:
            return
        if type(item) is Prefill:
            known = min(item.start_token, req.computed_tokens)  # the rest is being computed
            depth = start = min(known // shadow.page_size, len(req.tags))
            awaited = shadow.transfers.open.get(req.load)
            if awaited is not None and not awaited.landed:
                depth = len(req.shared_pages)
            self._states(shadow, req, item)
        else:
            depth = start = min(req.computed_tokens // shadow.page_size, len(req.tags))
        self._compare(shadow.device, item.tables[0][:depth], req.tags[:depth], "request", req.id)
        tables = iter(item.tables[1:])
        for kind in shadow.kinds[1:]:
            if kind.positional:
                pages, array = shadow.pages[kind.at], next(tables)[:start]
                here = array >= 0
                here[here] = pages.writer[array[here]] == 0
                self._compare(pages, array[here], req.tags[:start][here], "request", req.id)

    def _states(self, shadow: Shadow, req: RequestRecord, item: Prefill) -> None:
        """A pass must continue from the state of the prefix before it."""
        kinds = [kind for kind in shadow.kinds if not kind.positional]
        before = shadow.passes_before(item)
        read = before[-1].action.end_token if before else req.working  # type: ignore[union-attr]
        for kind, state in zip(kinds, item.states, strict=True):
            pages, start = shadow.pages[kind.at], item.start_token
            wrong = [at for at, _ in state.checkpoints if not start < at <= item.end_token]
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
            elif start % shadow.page_size or not 0 < start // shadow.page_size <= len(req.tags):
                self.fail(
                    f"request {req.id}: a pass from token {start} copies a {kind.name} state, "
                    f"which no boundary has there",
                    story.request(req.id),
                )
            elif not pages.writer[state.source]:
                depth = start // shadow.page_size
                source = np.array([state.source], dtype=np.int64)
                self._compare(pages, source, req.tags[depth - 1 : depth], "request", req.id)

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for slot, pages in enumerate(shadow.pages):
            pairs = [
                (page, record.tags if pages.positional else record.tags[-1:], record.id)
                for record in shadow.nodes.by_id.values()
                if (page := record.pages[slot]) is not None
            ]
            if pairs:
                result = pages.content[np.concatenate([array for array, _, _ in pairs])]
                if not same(result, np.concatenate([tags for _, tags, _ in pairs])):
                    for page, tags, whose in pairs:
                        self._compare(pages, page, tags, "node", whose)

    def _compare(self, pages: PageShadow, kept: Pages, tags: Tags, kind: str, whose: int) -> None:
        array = pages.content[kept]
        if same(array, tags):
            return
        wrong = array != tags if len(array) == len(tags) else np.ones(1, dtype=bool)
        at = int(wrong.argmax())
        number = int(kept[at])
        self.fail(
            f"{pages.where} page {number}, page {at} of {kind} {whose}: expected the "
            f"bytes tagged {int(tags[at]):016x}, found {int(array[at]):016x}"
            f"{' (nobody wrote it)' if not array[at] else ''}",
            story.page(pages, number),
            About(kind, whose),
        )


CHECKS = (Bytes,)
