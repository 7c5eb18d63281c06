"""KV events describe the contents of each tier."""

from __future__ import annotations

from hicache.core.actions import KvRemoved, KvStored
from hicache.core.events import StoreDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.story import flight, pool

from ._storage import parts_of


class EventMirror(Check):
    name = "EVENT-MIRROR"
    sentence = (
        "Replaying the KV events into an empty index gives the contents of device and host; what "
        "a store acknowledged, and nothing else, is announced for storage."
    )
    watches = (KvStored, KvRemoved, StoreDone)

    def __init__(self) -> None:
        self._index: tuple[set[bytes], set[bytes]] = (set(), set())
        self._durable: list[bytes] = []  # to be announced by the store that is answered now

    def issue(self, book: Book, item: KvStored | KvRemoved | StoreDone, view: CoreView) -> None:
        if type(item) is not StoreDone:
            return
        ticket, self._durable = book.tickets.open.get(item.flight), []
        idle = book.storage.abandoned | book.storage.outdated
        if ticket is None or ticket.id in idle or not book.config.kv_events:
            return
        for part in parts_of(book, ticket):
            if not part.at and part.mirror is not None and part.end <= item.pages:
                self._durable += part.digests

    def see(self, book: Book, item: KvStored | KvRemoved | StoreDone, view: CoreView) -> None:
        if isinstance(item, StoreDone):
            self._announced(book, item)
            return
        if item.tier == Tier.STORAGE:
            if type(item) is KvRemoved or type(book.event) is not StoreDone:
                self.fail(f"storage: {len(item.digests)} pages announced without a store")
            return
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

    def _announced(self, book: Book, item: StoreDone) -> None:
        found = [
            digest
            for one in book.outcomes
            if type(one) is KvStored and one.tier == Tier.STORAGE
            for digest in one.digests
        ]
        if found != self._durable:
            self.fail(
                f"flight {item.flight}: expected {len(self._durable)} pages to be announced as "
                f"stored, found {len(found)}",
                flight(item.flight),
            )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.config.kv_events or not book.history:
            return
        pending = [0, 0]
        for item in book.outcomes:
            if type(item) is KvStored and item.tier != Tier.STORAGE:
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
