"""Named states of storage that a good fuzzer must reach: prefetches, stores, and what meets them.

Each name is a rule over one event, its outcomes, and the flights for storage before it. Does not
count events by kind (see probes) or what follows the end of a request (see lives), and does not
check the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hicache.core.actions import (
    Abandoned,
    Admitted,
    Evicted,
    Fetch,
    Lookup,
    Outcome,
    Prefetched,
    StorageDetached,
    Store,
)
from hicache.core.config import Config
from hicache.core.events import Event, FetchDone, LookupDone, StoreDone
from hicache.core.radix.node import Flight, FlightKind
from hicache.core.types import Tier
from hicache.core.view import CoreView

REPLIES = (LookupDone, FetchDone, StoreDone)


class Stored:
    """Observes one core and counts the names of its states of storage."""

    def __init__(self, config: Config, seen: Counter[str]) -> None:
        self.config = config
        self.seen = seen
        self._answered: Flight | None = None
        self._pages = 0  # that the answered action asked for
        self._parts = 0  # legs of the answered action
        self._gone = False  # whether a node of the answered action has left the tree
        self._kinds: dict[int, FlightKind] = {}
        self._begun: dict[int, int] = {}  # legs by store, when it began
        self._fetched: set[int] = set()  # requests for which something was fetched
        self._queued: set[int] = set()
        self._evicts = False  # whether this event has evicted anything from host

    def before(self, event: Event, view: CoreView) -> None:
        self._kinds = {number: one.kind for number, one in view.storage_flights.items()}
        self._answered, self._evicts = None, False
        if isinstance(event, REPLIES):
            flight = self._answered = view.flights[event.flight]
            stored = sum(len(leg.source) for leg in flight.legs)
            self._pages = stored if flight.kind is FlightKind.STORE else len(flight.digests)
            self._parts = len(flight.legs)
            self._gone = any(leg.node is None for leg in flight.legs)

    def after(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if isinstance(event, REPLIES) and self._answered is not None:
            self._reply(event, self._answered, outcomes)
        for item in outcomes:
            self._outcome(event, item, view)
        if view.storage_flights or view.store_queue:
            self._now(view)

    def _reply(
        self,
        event: LookupDone | FetchDone | StoreDone,
        flight: Flight,
        outcomes: Sequence[Outcome],
    ) -> None:
        seen, name = self.seen, type(event).__name__
        some = "part" if 0 < event.pages < self._pages else "nothing" if not event.pages else "all"
        seen[f"{name} of {some}"] += 1
        seen[f"{name} of an abandoned flight"] += flight.abandoned
        if isinstance(event, FetchDone):
            seen["fetch after a flush"] += flight.receipt is None
            lost = [
                item
                for item in outcomes
                if isinstance(item, Prefetched) and item.fetched_pages < event.pages
            ]
            seen["fetched pages that the tree cannot take"] += bool(lost)
        if isinstance(event, StoreDone):
            more = self._begun.pop(event.flight, 1 << 30)
            seen["store of a node that was split"] += self._parts > more
            seen["store of a node that is gone"] += self._gone

    def _outcome(self, event: Event, item: Outcome, view: CoreView) -> None:
        seen, name = self.seen, type(event).__name__
        if isinstance(item, Prefetched):
            seen[f"Prefetched {item.reason or 'whole'} by {name}"] += 1
            if item.fetched_pages:
                self._fetched.add(item.request)
        elif isinstance(item, Lookup):
            seen[f"Lookup by {name}"] += 1
            seen["Lookup behind a known prefix"] += item.first_page > 0
            seen["Lookup of pages that the tree has in part"] += item.known_pages > 0
        elif isinstance(item, Fetch):
            parts = dict.fromkeys(piece.component for piece in item.pieces)
            seen[f"Fetch of {'+'.join(sorted(parts))}"] += 1
            seen["Fetch that evicts"] += self._evicts
            found = view.flights[item.flight].found_pages
            seen["Fetch shortened for lack of room"] += item.pages < found
        elif isinstance(item, Evicted):
            self._evicts |= item.tier == Tier.HOST
        elif isinstance(item, Store):
            self._begun[item.flight] = len(item.pieces)
            parts = dict.fromkeys(piece.component for piece in item.pieces)
            seen[f"Store of {'+'.join(sorted(parts))} by {name}"] += 1
        elif isinstance(item, Abandoned):
            seen[f"abandoned {self._kinds.get(item.flight, '')} by {name}"] += 1
        elif isinstance(item, StorageDetached):
            seen[f"StorageDetached by {name}"] += 1
        elif isinstance(item, Admitted) and item.request in self._fetched:
            self._fetched.discard(item.request)
            seen["Admitted on what was fetched"] += item.host_pages > 0

    def _now(self, view: CoreView) -> None:
        """Counts what is in flight together, and what waits."""
        seen, flights = self.seen, view.storage_flights.values()
        kinds = Counter(str(one.kind) for one in flights)
        most = max((len(one.waiters) for one in flights), default=0)
        seen["two requests wait for one prefetch"] += most > 1
        seen["three requests wait for one prefetch"] += most > 2
        seen["two fetches at once"] += kinds["fetch"] > 1
        seen["lookup, fetch and store at once"] += len({"lookup", "fetch", "store"} & {*kinds}) > 2
        seen["fetch and load at once"] += kinds["fetch"] > 0 and any(
            one.kind is FlightKind.LOAD for one in view.flights.values()
        )
        seen["as many stores as allowed"] += kinds["store"] == self.config.max_stores
        seen["nodes wait to be stored"] += bool(view.store_queue)
        seen["pages are distrusted"] += bool(view.distrusted)
        queued = set(view.store_queue)
        for number in queued - self._queued:
            node = view.touched.get(number)
            twins = node.children.values() if node is not None else ()
            seen["node split while it waits to be stored"] += any(
                child.id in self._queued for child in twins
            )
        self._queued = queued
        tries = self.config.store_tries
        seen["given up after as many tries as allowed"] += any(
            0 < tries <= node.store_failures for node in view.touched.values()
        )
