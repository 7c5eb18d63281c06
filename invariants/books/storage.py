"""The books of storage: whether it is attached, what it acknowledged, and who waits for a prefetch.

Lives here: what follows from events and outcomes alone. A request that neither began a lookup nor
was told that it has none waits for the oldest prefetch that covers the page it lacks first. Does
not handle pages (see tickets) and does not contain checks.

    begins to wait   a Lookup for it, or a prefetch that covers its page (`join`)
    waits no longer  Prefetched for it, or it leaves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from hicache.core.actions import (
    Abandoned,
    Delete,
    Fetch,
    Lookup,
    Outcome,
    Prefetched,
    Refused,
    Released,
    Store,
)
from hicache.core.config import Config
from hicache.core.events import (
    Aborted,
    Arrived,
    DeleteDone,
    DetachWanted,
    Event,
    FetchDone,
    Flushed,
    LookupDone,
    Retracted,
    StorageAttached,
    StoreDone,
)
from hicache.core.types import FlightId, RequestId

from .kinds import Kind
from .pages import NODE, PageBook
from .tags import NO_TAGS, Tags, digests_of
from .tickets import Ticket

MOST_DISTRUSTED = 1024


@dataclass(slots=True)
class Prefetch:
    """A lookup or fetch in flight. first: the page where it begins. digests: of the pages that it
    covers. prompt: tags of the pages up to the last of these, of the request that began it; others
    that wait may have other prompts. asked, found: pages; found is 0 until the lookup has ended.
    waiters: requests, in the order in which they began to wait. abandoned: nobody waits any more.
    """

    id: FlightId
    first: int
    digests: tuple[bytes, ...]
    prompt: Tags
    asked: int
    found: int = 0
    waiters: list[RequestId] = field(default_factory=list)
    abandoned: bool = False


class StorageBook:
    """What the checks know of storage."""

    def __init__(self, config: Config, kinds: Sequence[Kind], host: Sequence[PageBook]) -> None:
        self.host = host
        self.kinds = {kind.name: kind.at for kind in kinds}
        self.attached = config.storage
        self.flushed: set[FlightId] = set()  # lookups and fetches that were in flight at a flush
        self.deleting: set[FlightId] = set()
        self.abandoned: set[FlightId] = set()  # flights that were reported as abandoned
        self.outdated: set[FlightId] = set()  # in flight when storage was attached again
        self._open: set[FlightId] = set()  # lookups, fetches and stores in flight
        self.prefetches: dict[FlightId, Prefetch] = {}
        self.waits: dict[RequestId, FlightId] = {}
        self.digests: dict[RequestId, tuple[bytes, ...]] = {}  # of the prompts of waiting requests
        self.written: dict[tuple[int, bytes], int] = {}  # tag by component and digest, as stored
        self.acknowledged: set[tuple[int, bytes]] = set()  # component and digest, since the attach
        self.distrusted: dict[bytes, None] = {}  # promised and not delivered
        # of the operation that was filed last
        self.ended: Prefetch | None = None  # the prefetch that was answered
        self.closed: dict[RequestId, Prefetch] = {}  # what requests waited for until now
        self.told: list[RequestId] = []  # requests that were told about a prefetch of theirs
        self.left: list[FlightId] = []  # flights that nobody waits for any more
        self.doubled: list[FlightId] = []  # lookups for what another prefetch covers already
        self.lost: list[RequestId] = []  # requests that lack pages and wait for nothing
        self.forgotten = False  # whether what was known of storage was forgotten
        self._prompts: dict[RequestId, Tags] = {}
        self._order: dict[RequestId, int] = {}  # of arrival
        self._arrived = 0

    def arrive(self, event: Arrived, tags: Tags) -> None:
        """Files a request that has arrived. tags: of the pages that it may reuse."""
        if self.attached:
            self._prompts[event.request] = tags
            self.digests[event.request] = digests_of(event.key.first(event.match_pages))
            self._arrived += 1
            self._order[event.request] = self._arrived

    def owner(self, prefetch: Prefetch) -> RequestId:
        """The waiter that arrived first, -1 if there is none."""
        return next(iter(self.in_order(prefetch)), -1)

    def in_order(self, prefetch: Prefetch) -> list[RequestId]:
        """The waiters in the order of their arrival."""
        return sorted(prefetch.waiters, key=self._order.__getitem__)

    def owner_of(self, event: Event) -> RequestId | None:
        """The owner of the fetch that an event answers, -1 if it has gone. None if none."""
        if type(event) is not FetchDone:
            return None
        fetch = self.prefetches.get(event.flight)
        return self.owner(fetch) if fetch is not None else -1

    def begin(self) -> None:
        """Begins a new operation."""
        self.ended = None
        self.closed, self.told, self.left, self.lost, self.doubled = {}, [], [], [], []
        self.forgotten = False

    def refused(self, outcomes: Sequence[Outcome]) -> bool:
        return any(type(item) is Refused for item in outcomes)

    def hear(
        self,
        event: Event,
        outcomes: Sequence[Outcome],
        ticket: Ticket | None,
        lacks: Callable[[RequestId], range],
    ) -> None:
        """Files one operation. ticket: what the event answers. lacks: the pages of a request's
        prompt that are on no tier and that it may reuse."""
        self._life(event, outcomes)
        if ticket is not None:
            self._answered(event, ticket)
        began = [item for item in outcomes if type(item) is Lookup]
        told = {item.request: item for item in outcomes if type(item) is Prefetched}
        fetch = next((item for item in outcomes if type(item) is Fetch), None)
        ended = self.ended
        if ended is not None and fetch is not None:
            self._goes_on(ended, fetch)
        elif ended is not None:
            first = self.owner(ended)
            for request in self.in_order(ended):
                self._stop(request, ended)
                if request == first or request in told:
                    self.told.append(request)
                else:
                    self._begin(request, began, lacks)
        elif type(event) is Arrived and self.attached and event.request not in told:
            self._begin(event.request, began, lacks)
        else:
            self._let_go(event, told)
        self.abandoned.update(abandoned(outcomes))
        answered = getattr(event, "flight", 0)
        for flights in (self.abandoned, self.outdated, self._open):
            flights.discard(answered)
        for item in outcomes:
            if isinstance(item, Lookup | Fetch | Store):
                self._open.add(item.flight)
            elif type(item) is Delete:
                self.deleting.add(item.flight)
            elif type(item) is Released and type(event) is not Retracted:
                self._forget(item.request)

    def _life(self, event: Event, outcomes: Sequence[Outcome]) -> None:
        """Files what begins and ends the life of a storage, and of what is known of it."""
        kind = type(event)
        if kind is StorageAttached and not self.refused(outcomes):
            self.attached = True
            self.outdated |= self._open
        elif kind is DetachWanted:
            self.attached = False
        elif kind is not Flushed or self.refused(outcomes):
            return
        self.forgotten = True
        if kind is Flushed:
            self.flushed.update(self.prefetches)
        self.distrusted.clear()
        if kind is not Flushed or event.storage:  # type: ignore[union-attr]
            self.acknowledged.clear()

    def _answered(self, event: Event, ticket: Ticket) -> None:
        action = ticket.action
        self.flushed.discard(ticket.id)
        if type(event) is StoreDone and type(action) is Store:
            if ticket.id in self.abandoned | self.outdated:
                return
            left = event.pages
            for piece in action.pieces:
                at = self.kinds.get(piece.component, 0)
                owners = self.host[at].owner[piece.pages].tolist()
                for digest, owner in zip(piece.digests[: max(0, left)], owners, strict=False):
                    if owner & 3 == NODE:  # of a node that has left, nothing is known any more
                        self.distrusted.pop(digest, None)
                    if self.attached:
                        self.acknowledged.add((at, digest))
                left -= len(piece.pages)
        elif type(event) is DeleteDone:
            self.deleting.discard(ticket.id)
        elif type(event) is LookupDone or type(event) is FetchDone:
            self.ended = ended = self.prefetches.pop(ticket.id, None)
            if type(event) is FetchDone and type(action) is Fetch and ended is not None:
                self._fetched(event, action, ended)
            elif type(event) is LookupDone and ended is not None:
                ended.found = event.pages

    def _fetched(self, event: FetchDone, action: Fetch, ended: Prefetch) -> None:
        outdated = event.flight in self.outdated
        if self.attached and not outdated:
            for piece in action.pieces:
                at = self.kinds.get(piece.component, 0)
                count = max(0, action.first_page + event.pages - piece.first_page)
                self.acknowledged.update((at, digest) for digest in piece.digests[:count])
        if event.pages < action.pages and not ended.abandoned and not outdated:
            self.distrusted.setdefault(ended.digests[event.pages])
            while len(self.distrusted) > MOST_DISTRUSTED:
                del self.distrusted[next(iter(self.distrusted))]

    def _goes_on(self, ended: Prefetch, fetch: Fetch) -> None:
        """The lookup has ended, and a fetch takes its place."""
        covered = ended.digests[: fetch.pages]
        prompt = ended.prompt[: ended.first + fetch.pages]
        self.prefetches[fetch.flight] = Prefetch(
            fetch.flight, ended.first, covered, prompt, ended.asked, ended.found, ended.waiters
        )
        for request in ended.waiters:
            self.waits[request] = fetch.flight

    def _begin(
        self,
        request: RequestId,
        began: Sequence[Lookup],
        lacks: Callable[[RequestId], range],
    ) -> None:
        """The request begins to wait, unless it lacks nothing."""
        lookup = next((item for item in began if item.request == request), None)
        if lookup is not None:
            first, digests = lookup.first_page, lookup.digests
            if self.covering(request, first) is not None:
                self.doubled.append(lookup.flight)
            prompt = self._prompts.get(request, NO_TAGS)[: first + len(digests)]
            found = Prefetch(lookup.flight, first, digests, prompt, len(digests))
            self.prefetches[lookup.flight] = found
        elif not (lacking := lacks(request)):
            return
        else:
            joined = self.covering(request, lacking[0])
            if joined is None:
                self.lost.append(request)
                return
            found = joined
        found.waiters.append(request)
        self.waits[request] = found.id

    def looked_up(self, event: Event) -> Prefetch | None:
        """The lookup that an event answers."""
        return self.prefetches.get(event.flight) if type(event) is LookupDone else None

    def covering(self, request: RequestId, page: int) -> Prefetch | None:
        """The oldest prefetch that covers this page of the request's prompt."""
        digests = self.digests.get(request, ())
        if page >= len(digests):
            return None
        for _, prefetch in sorted(self.prefetches.items()):
            if not prefetch.abandoned and digests[page] in prefetch.digests:
                return prefetch
        return None

    def _stop(self, request: RequestId, prefetch: Prefetch) -> None:
        self.closed[request] = prefetch
        self.waits.pop(request, None)

    def _let_go(self, event: Event, told: Set[RequestId] | dict[RequestId, Prefetched]) -> None:
        """Requests that stop waiting although their prefetch goes on."""
        gone = [request for request in self.waits if request in told]
        self.told += gone
        if type(event) is Aborted and event.request in self.waits:
            gone.append(event.request)
        for request in gone:
            prefetch = self.prefetches.get(self.waits[request])
            if prefetch is None:
                del self.waits[request]
                continue
            self._stop(request, prefetch)
            prefetch.waiters.remove(request)
            if not prefetch.waiters:
                prefetch.abandoned = True
                self.left.append(prefetch.id)

    def _forget(self, request: RequestId) -> None:
        self.digests.pop(request, None)
        self._prompts.pop(request, None)
        self._order.pop(request, None)

    def tokens(self, page_size: int) -> int:
        """Tokens that are looked up or fetched."""
        return sum(len(one.digests) for one in self.prefetches.values()) * page_size

    def write(self, tickets: Sequence[Ticket]) -> None:
        """Files what storage will have under the digests of stores: the content of each page."""
        for ticket in tickets:
            if type(ticket.action) is not Store:
                continue
            for piece in ticket.action.pieces:
                at = self.kinds.get(piece.component, 0)
                contents = self.host[at].content[piece.pages].tolist()
                for digest, tag in zip(piece.digests, contents, strict=False):
                    self.written[at, digest] = tag


def abandoned(outcomes: Sequence[Outcome]) -> list[FlightId]:
    """The flights that an operation reports as abandoned."""
    return [item.flight for item in outcomes if type(item) is Abandoned]
