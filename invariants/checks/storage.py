"""The third tier: digests, what is believed to be stored, prefetches, and KV events."""

from collections.abc import Iterator
from typing import NamedTuple

from hicache.core.actions import Fetch, KvRemoved, KvStored, Lookup, Refused, Store
from hicache.core.events import StoreDone
from hicache.core.node import STORE
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.shadow import story
from invariants.shadow.pages import KIND_BITS, KIND_MASK, NODE
from invariants.shadow.record import NodeRecord
from invariants.shadow.shadow import Shadow
from invariants.shadow.transfers import OF_STORAGE, TransferRecord


class Part(NamedTuple):
    """Pages of a store that one node has: of a component, from page `first` of the prompt on.
    place: how many pages of the store come before them. Empty tags: the node is gone."""

    at: int
    record: NodeRecord | None
    digests: tuple[bytes, ...]
    tags: tuple[int, ...]
    first: int
    place: int

    @property
    def end(self) -> int:
        return self.place + len(self.digests)


def parts_of(shadow: Shadow, transfer: TransferRecord) -> Iterator[Part]:
    """The pages of a store by component and node, in the order of its pieces. A piece has several
    parts if its node was split since."""
    place = 0
    action = transfer.action
    for piece in action.pieces if type(action) is Store else ():
        at = shadow.index_of(piece.component)
        host = shadow.pool(Tier.HOST, at)
        codes = host.owner[piece.pages].tolist()
        tags = host.content[piece.pages].tolist()
        start = 0
        while start < len(codes):
            stop = start
            while stop < len(codes) and codes[stop] == codes[start]:
                stop += 1
            ours = codes[start] & KIND_MASK == NODE
            record = shadow.nodes.by_id.get(codes[start] >> KIND_BITS) if ours else None
            yield Part(
                at,
                record,
                piece.digests[start:stop],
                tuple(tags[start:stop]) if record is not None else (),
                piece.first_page + start,
                place + start,
            )
            start = stop
        place += len(codes)


class KeyRoundTrip(Check):
    name = "KEY-RT"
    sentence = (
        "The digest under which a page is looked up, fetched or stored is the chain digest of the "
        "tokens of its whole prefix and of its namespace, computed again from the request or the "
        "path of the node."
    )
    items = (Lookup, Fetch, Store)

    def after(self, shadow: Shadow, item: Lookup | Fetch | Store, view: CoreView) -> None:
        if type(item) is Store:
            self._stored(shadow, item)
            return
        if type(item) is Lookup:
            known, above = shadow.storage.digests.get(item.request, ()), 0
            runs = [(item.first_page, item.digests)]
        else:  # the lookup that it follows was for the prompt
            prefetch = shadow.storage.prefetches.get(item.transfer)
            known, above = (prefetch.digests, prefetch.first) if prefetch is not None else ((), 0)
            runs = [(piece.first_page, piece.digests) for piece in item.pieces]  # type: ignore[union-attr]
        for first, digests in runs:
            if first < above or digests != known[first - above : first - above + len(digests)]:
                self.fail(
                    f"transfer {item.transfer}, pages {first}..{first + len(digests)} for request "
                    f"{item.request}: expected the digests of the prompt, found others",  # type: ignore[union-attr]
                    story.transfer(item.transfer),
                    story.request(item.request),  # type: ignore[union-attr]
                )

    def _stored(self, shadow: Shadow, item: Store) -> None:
        for part in parts_of(shadow, shadow.transfers.open[item.transfer]):
            record = part.record
            if record is None:
                self.fail(
                    f"transfer {item.transfer} stores {shadow.kinds[part.at].name} pages that no "
                    "node has on host",
                    story.transfer(item.transfer),
                )
            start = part.first - (record.end_page - record.span)
            chained = shadow.nodes.digests_of(record)
            known = chained[start : start + len(part.digests)] if start >= 0 else ()
            if known != part.digests:
                self.fail(
                    f"transfer {item.transfer} stores pages {part.first}.."
                    f"{part.first + len(part.digests)} of node {record.id}: expected the digests "
                    "of its path, found others",
                    story.transfer(item.transfer),
                )


class Stored(Check):
    name = "STORED"
    sentence = (
        "What is believed to be stored was acknowledged since storage was attached. What is on "
        "host is believed, being stored or waits for that, unless a store failed."
    )

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if shadow.history and shadow.storage.seen:
            for record in shadow.nodes.dirty.values():
                self._believed(shadow, record, view)

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for record in shadow.nodes.by_id.values():
            self._believed(shadow, record, view)

    def _believed(self, shadow: Shadow, record: NodeRecord, view: CoreView) -> None:
        node = record.node
        if node is None or record.parent is None:
            return
        lacks = shadow.width == 1 and shadow.storage.steady and node.pages[1][0] is not None
        known = view.believed(node) or node.store_place or node.store_failures
        if lacks and not known and not any(item.transfer.kind is STORE for item in node.segments):
            self.fail(f"node {record.id} is not to be stored", story.node(record.id))
        for kind in shadow.kinds:
            if not view.believed(node, kind.at):
                continue
            digests = shadow.nodes.digests_of(record)
            wanted = digests if kind.positional else digests[-1:]
            known = sum((kind.at, data) in shadow.storage.acknowledged for data in wanted)
            if not shadow.storage.attached or known < len(wanted) or not wanted:
                self.fail(
                    f"node {record.id}: its {kind.name} is believed to be stored; {known} of "
                    f"{len(wanted)} pages were acknowledged since storage was attached",
                    story.node(record.id),
                )


class PrefetchAccount(Check):
    name = "PREF-ACC"
    sentence = (
        "The tokens that are being prefetched are those of the lookups and fetches in flight, "
        "never more than the budget, and none at quiescence, when no request waits for a prefetch "
        "either. A lookup is for the rest of its prompt, as far as budget and trust reach, and a "
        "fetch for all that was found, as far as there is room on host."
    )
    items = (Lookup, Fetch)

    def after(self, shadow: Shadow, item: Lookup | Fetch, view: CoreView) -> None:
        if isinstance(item, Fetch):
            most, spare = getattr(shadow.event, "pages", 0), shadow.host.pool.available
            spare -= sum(shadow.config.exchange_pages[:1])
            if item.pages < most and (shadow.width > 1 or spare > 0):
                self.fail(
                    f"a fetch of {item.pages} pages: {most} were found, room is for {spare} more",
                    story.transfer(item.transfer),
                )
            return
        for number, other in shadow.storage.prefetches.items():
            at = item.first_page - other.first
            now = number != item.transfer and number not in shadow.storage.abandoned and at >= 0
            if now and other.digests[at : at + 1] == item.digests[:1]:
                self.fail(f"what {number} looks up is looked up again", story.transfer(number))
        digests = shadow.storage.digests.get(item.request, ())
        end, left = item.first_page + len(item.digests), _budget(shadow) - view.prefetching_tokens
        if end < len(digests) and digests[end] not in view.distrusted and left >= shadow.page_size:
            self.fail(
                f"request {item.request}: a lookup up to page {end} of {len(digests)}, with {left} "
                "tokens of the budget left",
                story.request(item.request),
            )

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if not shadow.history or not (shadow.storage.prefetches or view.storage_transfers):
            return
        expected = shadow.storage.tokens(shadow.page_size)
        prefetching_tokens = view.prefetching_tokens
        budget = _budget(shadow)
        if expected != prefetching_tokens or prefetching_tokens > budget:
            self.fail(
                f"tokens that are being prefetched: expected {expected}, at most {budget}, found "
                f"{prefetching_tokens}",
                *(story.transfer(number) for number in shadow.storage.prefetches),
            )

    def at_rest(self, shadow: Shadow, view: CoreView) -> None:
        waiting = [request.id for request in view.requests.values() if request.prefetch]
        if view.prefetching_tokens or waiting:
            self.fail(
                f"expected no prefetch at quiescence, found {view.prefetching_tokens} tokens, and "
                f"requests {waiting} that wait"
            )


def _budget(shadow: Shadow) -> int:
    tokens = shadow.config.prefetch_budget_tokens
    return tokens or shadow.host.capacity * shadow.page_size


_REASONS = ("fetching", "detaching")


class NeverDevice(Check):
    name = "NEVER-DEVICE"
    sentence = (
        "An action for storage locks no device page, has none on loan and lets no eviction wait, "
        "and no refusal for lack of pages names it: nothing on device waits for storage."
    )
    items = (Refused,)

    def after(self, shadow: Shadow, item: Refused, view: CoreView) -> None:
        transfer = shadow.transfers.open.get(item.after)
        stored = transfer is not None and type(transfer.action) in OF_STORAGE
        if stored != (item.reason in _REASONS):
            self.fail(
                f"request {item.request}, refused ({item.reason}) until transfer {item.after} is "
                f"answered: expected {'an' if item.reason in _REASONS else 'no'} action for "
                "storage",
                story.request(item.request),
            )

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if not shadow.history:
            return
        for number in view.storage_transfers:
            transfer = view.transfers[number]
            entries = () if transfer.receipt is None else transfer.receipt.locked
            locks = sum(tier == Tier.DEVICE for entry in entries for _, tier in entry)
            on_loan = sum(map(len, transfer.on_loan))
            if locks or on_loan or transfer.evicts or any(transfer.frees) or any(transfer.gives_up):
                self.fail(
                    f"transfer {number}: expected nothing on device, found {locks} locks, "
                    f"{on_loan} pages on loan, and that an eviction waits: {transfer.evicts}",
                    story.transfer(number),
                )


class EventMirror(Check):
    name = "EVENT-MIRROR"
    sentence = (
        "Replaying the KV events into an empty index gives the contents of device and host; what "
        "a store acknowledged, and nothing else, is announced for storage."
    )
    items = (KvStored, KvRemoved, StoreDone)

    def __init__(self) -> None:
        self._index: tuple[set[bytes], set[bytes]] = (set(), set())
        self._durable: list[bytes] = []  # to be announced by the store that is answered now

    def before(
        self, shadow: Shadow, item: KvStored | KvRemoved | StoreDone, view: CoreView
    ) -> None:
        if type(item) is not StoreDone:
            return
        transfer, self._durable = shadow.transfers.open.get(item.transfer), []
        idle = shadow.storage.abandoned | shadow.storage.outdated
        if transfer is None or transfer.id in idle or not shadow.config.kv_events:
            return
        for part in parts_of(shadow, transfer):
            if not part.at and part.record is not None and part.end <= item.pages:
                self._durable += part.digests

    def after(self, shadow: Shadow, item: KvStored | KvRemoved | StoreDone, view: CoreView) -> None:
        if isinstance(item, StoreDone):
            self._announced(shadow, item)
            return
        if item.tier == Tier.STORAGE:
            if type(item) is KvRemoved or type(shadow.event) is not StoreDone:
                self.fail(f"storage: {len(item.digests)} pages announced without a store")
            return
        index, digests = self._index[item.tier], item.digests
        where = item.tier.name.lower()
        if type(item) is KvStored:
            if not index.isdisjoint(digests):
                self.fail(
                    f"{where}: {len(digests)} pages stored, some of them a second time",
                    story.pool(shadow.pool(item.tier, 0)),
                )
            index.update(digests)
        else:
            if not index.issuperset(digests):
                self.fail(
                    f"{where}: {len(digests)} pages removed, some of which were not stored",
                    story.pool(shadow.pool(item.tier, 0)),
                )
            index.difference_update(digests)

    def _announced(self, shadow: Shadow, item: StoreDone) -> None:
        values = [
            digest
            for outcome in shadow.outcomes
            if type(outcome) is KvStored and outcome.tier == Tier.STORAGE
            for digest in outcome.digests
        ]
        if values != self._durable:
            self.fail(
                f"transfer {item.transfer}: expected {len(self._durable)} pages to be announced as "
                f"stored, found {len(values)}",
                story.transfer(item.transfer),
            )

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if not shadow.config.kv_events or not shadow.history:
            return
        pending = [0, 0]
        for item in shadow.outcomes:
            if type(item) is KvStored and item.tier != Tier.STORAGE:
                pending[item.tier] += len(item.digests)
            elif type(item) is KvRemoved:
                pending[item.tier] -= len(item.digests)
        for tier in (0, 1):
            number = len(self._index[tier]) + pending[tier]
            expected = len(shadow.nodes.digests[tier])
            if number != expected:
                self.fail(
                    f"tier {tier}: expected {expected} pages announced, found {number}",
                    story.pool(shadow.pool(tier, 0)),
                )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        if shadow.config.kv_events:
            for tier in (0, 1):
                odd = self._index[tier] ^ shadow.nodes.digests[tier]
                if odd:
                    self.fail(
                        f"tier {tier}: {len(self._index[tier])} pages announced, "
                        f"{len(shadow.nodes.digests[tier])} there, {len(odd)} differ "
                        f"(first {min(odd).hex()[:16]})",
                        story.pool(shadow.pool(tier, 0)),
                    )


CHECKS = (KeyRoundTrip, Stored, PrefetchAccount, NeverDevice, EventMirror)
