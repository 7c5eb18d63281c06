"""KV events describe the contents of each tier."""

from __future__ import annotations

from hicache.core.actions import KvRemoved, KvStored
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import pool


class EventMirror(Check):
    name = "EVENT-MIRROR"
    sentence = "Replaying the KV events into an empty index gives the contents of each tier."
    watches = (KvStored, KvRemoved)

    def __init__(self) -> None:
        super().__init__()
        self._index: tuple[set[bytes], set[bytes]] = (set(), set())

    def see(self, book: Book, item: KvStored | KvRemoved, view: CoreView) -> None:
        index, digests = self._index[item.tier], item.digests
        where = item.tier.name.lower()
        if type(item) is KvStored:
            if not index.isdisjoint(digests):
                self.fail(
                    f"{where}: {len(digests)} pages stored, some of them a second time",
                    pool(book.pool(item.tier, 0)),
                )
            index.update(digests)
        else:
            if not index.issuperset(digests):
                self.fail(
                    f"{where}: {len(digests)} pages removed, some of which were not stored",
                    pool(book.pool(item.tier, 0)),
                )
            index.difference_update(digests)

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.config.kv_events or not book.history:
            return
        pending = [0, 0]
        for item in book.outcomes:
            if type(item) is KvStored:
                pending[item.tier] += len(item.digests)
            elif type(item) is KvRemoved:
                pending[item.tier] -= len(item.digests)
        for tier in (0, 1):
            found = len(self._index[tier]) + pending[tier]
            expected = len(book.nodes.digests[tier])
            if found != expected:
                self.fail(
                    f"tier {tier}: expected {expected} pages announced, found {found}",
                    pool(book.pool(tier, 0)),
                )

    def audit(self, book: Book, view: CoreView) -> None:
        if book.config.kv_events:
            for tier in (0, 1):
                odd = self._index[tier] ^ book.nodes.digests[tier]
                if odd:
                    self.fail(
                        f"tier {tier}: {len(self._index[tier])} pages announced, "
                        f"{len(book.nodes.digests[tier])} there, {len(odd)} differ "
                        f"(first {min(odd).hex()[:16]})",
                        pool(book.pool(tier, 0)),
                    )


def check() -> EventMirror:
    return EventMirror()
