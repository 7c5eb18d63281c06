"""The third tier: digests, what is believed to be stored, prefetches, and KV events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hicache.core.actions import Fetch, KvRemoved, KvStored, Lookup, Refused, Store
from hicache.core.events import StoreDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.pages import NODE
from invariants.books.tickets import OF_STORAGE, Ticket


class Part(NamedTuple):
    """Pages of a store that one node has: of a component, from page `first` of the prompt on.
    place: how many pages of the store come before them. Empty tags: the node is gone."""

    at: int
    mirror: NodeMirror | None
    digests: tuple[bytes, ...]
    tags: tuple[int, ...]
    first: int
    place: int

    @property
    def end(self) -> int:
        return self.place + len(self.digests)


def parts_of(book: Book, ticket: Ticket) -> Iterator[Part]:
    """The pages of a store by component and node, in the order of its pieces. A piece has several
    parts if its node was split since."""
    place = 0
    action = ticket.action
    for piece in action.pieces if type(action) is Store else ():
        at = book.index_of(piece.component)
        host = book.pool(Tier.HOST, at)
        codes = host.owner[piece.pages].tolist()
        tags = host.content[piece.pages].tolist()
        start = 0
        while start < len(codes):
            stop = start
            while stop < len(codes) and codes[stop] == codes[start]:
                stop += 1
            ours = codes[start] & 3 == NODE
            mirror = book.nodes.by_id.get(codes[start] >> 2) if ours else None
            yield Part(
                at,
                mirror,
                piece.digests[start:stop],
                tuple(tags[start:stop]) if mirror is not None else (),
                piece.first_page + start,
                place + start,
            )
            start = stop
        place += len(codes)


class KeyRoundTrip(Check):
    name = "KEY-RT"
    sentence = (
        "The digest under which a page is looked up, fetched or stored is the chain digest of the "
        "tokens of its whole prefix and of its namespace, computed again from the request or from "
        "the path of the node."
    )
    watches = (Lookup, Fetch, Store)

    def see(self, book: Book, item: Lookup | Fetch | Store, view: CoreView) -> None:
        if type(item) is Store:
            self._stored(book, item)
            return
        if type(item) is Lookup:
            known, above = book.storage.digests.get(item.request, ()), 0
            runs = [(item.first_page, item.digests)]
        else:  # the lookup that it follows was for the prompt
            prefetch = book.storage.prefetches.get(item.flight)
            known, above = (prefetch.digests, prefetch.first) if prefetch is not None else ((), 0)
            runs = [(piece.first_page, piece.digests) for piece in item.pieces]  # type: ignore[union-attr]
        for first, digests in runs:
            if first < above or digests != known[first - above : first - above + len(digests)]:
                self.fail(
                    f"flight {item.flight}, pages {first}..{first + len(digests)} for request "
                    f"{item.request}: expected the digests of the prompt, found others",  # type: ignore[union-attr]
                    story.flight(item.flight),
                    story.request(item.request),  # type: ignore[union-attr]
                )

    def _stored(self, book: Book, item: Store) -> None:
        for part in parts_of(book, book.tickets.open[item.flight]):
            mirror = part.mirror
            if mirror is None:
                self.fail(
                    f"flight {item.flight} stores {book.kinds[part.at].name} pages that no node "
                    "has on host",
                    story.flight(item.flight),
                )
            start = part.first - (mirror.end_page - mirror.span)
            chained = book.nodes.digests_of(mirror)
            known = chained[start : start + len(part.digests)] if start >= 0 else ()
            if known != part.digests:
                self.fail(
                    f"flight {item.flight} stores pages {part.first}.."
                    f"{part.first + len(part.digests)} of node {mirror.id}: expected the digests "
                    "of its path, found others",
                    story.flight(item.flight),
                )


class Stored(Check):
    name = "STORED"
    sentence = "What is believed to be stored was acknowledged since storage was attached."

    def totals(self, book: Book, view: CoreView) -> None:
        if book.history and book.storage.seen:
            for mirror in book.nodes.dirty.values():
                self._believed(book, mirror, view)

    def audit(self, book: Book, view: CoreView) -> None:
        for mirror in book.nodes.by_id.values():
            self._believed(book, mirror, view)

    def _believed(self, book: Book, mirror: NodeMirror, view: CoreView) -> None:
        record = mirror.node
        if record is None or mirror.parent is None:
            return
        for kind in book.kinds:
            if not view.believed(record, kind.at):
                continue
            digests = book.nodes.digests_of(mirror)
            wanted = digests if kind.positional else digests[-1:]
            known = sum((kind.at, one) in book.storage.acknowledged for one in wanted)
            if not book.storage.attached or known < len(wanted) or not wanted:
                self.fail(
                    f"node {mirror.id}: its {kind.name} is believed to be stored; {known} of "
                    f"{len(wanted)} pages were acknowledged since storage was attached",
                    story.node(mirror.id),
                )


class PrefetchAccount(Check):
    name = "PREF-ACC"
    sentence = (
        "The tokens that are being prefetched are those of the lookups and fetches in flight, "
        "never more than the budget, and none at quiescence, when no request waits for a prefetch "
        "either."
    )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history or not (book.storage.prefetches or view.storage_flights):
            return
        expected, found = book.storage.tokens(book.page_size), view.prefetching_tokens
        config = book.config
        budget = config.prefetch_budget_tokens or book.host.capacity * book.page_size
        if expected != found or found > budget:
            self.fail(
                f"tokens that are being prefetched: expected {expected}, at most {budget}, found "
                f"{found}",
                *(story.flight(number) for number in book.storage.prefetches),
            )

    def still(self, book: Book, view: CoreView) -> None:
        waiting = [one.id for one in view.requests.values() if one.prefetch]
        if view.prefetching_tokens or waiting:
            self.fail(
                f"expected no prefetch at quiescence, found {view.prefetching_tokens} tokens, and "
                f"requests {waiting} that wait"
            )


_REASONS = ("fetching", "detaching")


class NeverDevice(Check):
    name = "NEVER-DEVICE"
    sentence = (
        "An action for storage locks no device page, has none on loan and lets no eviction wait, "
        "and no refusal for lack of pages names it: nothing on device waits for storage."
    )
    watches = (Refused,)

    def see(self, book: Book, item: Refused, view: CoreView) -> None:
        ticket = book.tickets.open.get(item.after)
        stored = ticket is not None and type(ticket.action) in OF_STORAGE
        if stored != (item.reason in _REASONS):
            self.fail(
                f"request {item.request}, refused ({item.reason}) until flight {item.after} is "
                f"answered: expected {'an' if item.reason in _REASONS else 'no'} action for "
                "storage",
                story.request(item.request),
            )

    def totals(self, book: Book, view: CoreView) -> None:
        if not book.history:
            return
        for number in view.storage_flights:
            one = view.flights[number]
            entries = () if one.receipt is None else one.receipt.locked
            locks = sum(tier == Tier.DEVICE for held in entries for _, tier in held)
            lent = sum(map(len, one.lent))
            if locks or lent or one.evicts or any(one.frees) or any(one.gives_up):
                self.fail(
                    f"flight {number}: expected nothing on device, found {locks} locks, {lent} "
                    f"pages on loan, and that an eviction waits: {one.evicts}",
                    story.flight(number),
                )


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
                    story.pool(book.pool(item.tier, 0)),
                )
            index.update(digests)
        else:
            if not index.issuperset(digests):
                self.fail(
                    f"{where}: {len(digests)} pages removed, some of which were not stored",
                    story.pool(book.pool(item.tier, 0)),
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
                story.flight(item.flight),
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
                    story.pool(book.pool(tier, 0)),
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
                        story.pool(book.pool(tier, 0)),
                    )


CHECKS = (KeyRoundTrip, Stored, PrefetchAccount, NeverDevice, EventMirror)
