"""What became of every page and prefetch of a replay, so that a miss can be explained.

An observer that follows the pages of every table, so it is attached only where somebody asks
(`--requests`, `--why`, `--html`, a store). It tells what ended the hit of each request at its first
admission (docs/json.md has the values), and with storage why each tier and pool did not have the
page behind the hit, and what the lost tokens were lost to (docs/storage_replay.md).

Pages are followed by their ids in the trace (`Paged.chain`). A page number of a tier stands for the
id that was last written there, which is right for every page that the tree has. A state has the id
of the page that it ends at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Fetch,
    Granted,
    Load,
    Lookup,
    Outcome,
    Piece,
    Prefetched,
    Prefill,
    Refused,
    Store,
)
from hicache.core.events import (
    Aborted,
    Arrived,
    Event,
    Finished,
    Flushed,
    PrefillDone,
    Retracted,
    StoreDone,
)
from hicache.core.radix.node import Node
from hicache.core.types import BACKBONE, NO_PAGES, FlightId, Pages, Tier
from hicache.core.view import CoreView
from hicache.storage.base import Status
from sim.storage.contents import Fate

from ..formats.base import Paged

COMPLETE, FIRST_SEEN, EVICTED, NOT_READY = "complete", "first_seen", "evicted", "not_ready"
NOT_LOADED, TOGETHER, TOO_LARGE = "not_loaded", "together", "too_large"
OTHER_REPLICA = "other_replica"
THERE, NEVER_BACKED_UP, NEVER_STORED = "there", "never_backed_up", "never_stored"
STORE_FAILED, WAITING = "store_failed", "evicted_while_waiting"
NEVER_NS = NOBODY = -1
_ENDS = ("too_short", "budget", "no_host_pages", "late", "flushed", "detached")
_SHORT = {Status.CORRUPT: "corrupt", Status.MISSING: "short_read"}
_FATES = {
    Fate.EVICTED: "evicted_from_storage",
    Fate.LOST: "lost_in_storage",
    Fate.CORRUPT: "corrupt",
    Fate.DELETED: "deleted",
}


class Miss(NamedTuple):
    """What ended the hit of one request, with the depth in pages.

    evicted_ns, evicted_for: when the next page left the last tier, and the request that was given
    the room, if `ended_by` is evicted; else NEVER_NS and NOBODY. from_host: whether that tier was
    host memory. evicted_at: the name of the event that evicted it.
    """

    ended_by: str
    hit_pages: int
    evicted_ns: int = NEVER_NS
    evicted_for: int = NOBODY
    from_host: bool = False
    evicted_at: str = ""


class Caps(NamedTuple):
    """By tier and component, what capped the hit. reason: what the lost tokens were lost to; empty
    if it lost none, or if a component ended the hit whose backbone was there."""

    tiers: Mapping[str, Mapping[str, str]]
    reason: str


# By page id: the tiers that have it, and that ever had it, as bits; whether a store of it failed;
# and when, for whom, from which tier and at which event it left the last of device and host.
_PAGE = np.dtype(
    [
        *(("now", "u1"), ("ever", "u1"), ("failed", "?")),
        *(("left_ns", "i8"), ("left_for", "i8"), ("from_host", "?"), ("left_at", "u1")),
    ]
)
_UNSEEN = np.array((0, 0, False, NEVER_NS, NOBODY, False, 0), dtype=_PAGE)
_DEVICE, _HOST = 1 << Tier.DEVICE, 1 << Tier.HOST


class _Pages:
    """The pages of one component. of: by page id. ids: by page number of a tier."""

    def __init__(self) -> None:
        self.of = np.full(1 << 12, _UNSEEN, dtype=_PAGE)
        self.ids: dict[Tier, Pages] = {}

    def know(self, ids: int) -> None:
        """Makes room for so many ids."""
        if ids > len(self.of):
            more = max(ids, 2 * len(self.of)) - len(self.of)
            self.of = np.concatenate((self.of, np.full(more, _UNSEEN, dtype=_PAGE)))

    def arrive(self, tier: Tier, ids: Pages) -> None:
        """The tier has these ids from now on."""
        ids = ids[ids >= 0]
        self.of["now"][ids] |= 1 << tier
        self.of["ever"][ids] |= 1 << tier

    def leave(
        self, ids: Pages, now_ns: int, request: int, at: int, from_host: bool | NDArray[np.bool_]
    ) -> None:
        self.of["left_ns"][ids] = now_ns
        self.of["left_for"][ids] = request
        self.of["left_at"][ids] = at
        self.of["from_host"][ids] = from_host

    def has(self, tier: Tier, page: int) -> bool:
        return bool(self.of["now"][page] & 1 << tier)

    def had(self, tier: Tier, page: int) -> bool:
        return bool(self.of["ever"][page] & 1 << tier)

    def cap(self, tier: Tier, page: int) -> str:
        """Why a tier did not have a page; THERE if it did."""
        if self.has(tier, page):
            return THERE
        if self.had(tier, page):
            return EVICTED
        if tier == Tier.STORAGE:
            if self.of["failed"][page]:
                return STORE_FAILED
            return NEVER_STORED if self.had(Tier.HOST, page) else self.cap(Tier.HOST, page)
        if tier == Tier.HOST and self.had(Tier.DEVICE, page):
            return NEVER_BACKED_UP
        return NOT_READY


@dataclass(slots=True)
class _Prefetch:
    """What happened to the prefetch of one request, as far as it got."""

    lookup: Lookup | None = None
    fetch: Fetch | None = None
    ended: Prefetched | None = None


class History:
    """The observer. ceiling: pages per request that an unbounded cache would hit. now_ns: the time.
    short, fate: what a store can say: why a lookup or fetch was cut short, by flight, and what
    became of a value that is not there, by component and digest.

    misses: by request. refused: by request and reason, how often it was asked to wait. caps: by
    request, with storage.
    """

    def __init__(
        self,
        trace: Paged,
        components: Sequence[str],
        ceiling: NDArray[np.int32],
        whole_prompts: bool,
        stored: bool = False,
    ) -> None:
        self.now_ns: Callable[[], int] = lambda: NEVER_NS
        self.short: Callable[[int], Status | None] = lambda flight: None
        self.fate: Callable[[str, bytes], Fate] = lambda component, digest: Fate.NEVER
        self.misses: dict[int, Miss] = {}
        self.refused: dict[int, dict[str, int]] = {}
        self.caps: dict[int, Caps] = {}
        self._trace = trace
        self._components = tuple(components)
        self._pages = [_Pages() for _ in components]
        self._ceiling = ceiling
        self._whole_prompts = whole_prompts or trace.knows_output
        self._stored = stored
        self._events = [""]  # names, by their number in `left_at`
        self._chains: dict[int, Pages] = {}
        self._wanted: dict[int, int] = {}
        self._passes: dict[int, int] = {}  # the request of each pass in flight
        self._stores: dict[FlightId, list[tuple[_Pages, Pages]]] = {}  # ids of each piece
        self._prefetches: dict[int, _Prefetch] = defaultdict(_Prefetch)  # by request

    def lost_to(self, request: int) -> str:
        """What the lost tokens of a request were lost to."""
        caps = self.caps.get(request)
        return (caps.reason if caps is not None else "") or self.misses[request].ended_by

    def on_event(self, event: Event, view: CoreView) -> None:
        if type(event) is not Arrived:
            return
        job = self._trace.jobs[event.request]
        chain = self._trace.chain(job)
        if not self._whole_prompts:  # the last page belongs to the answer, too
            chain = chain[: job.input_length // self._trace.page_size]
        self._chains[event.request] = chain
        self._wanted[event.request] = min(event.match_pages, event.key.pages)
        for pages in self._pages:
            pages.know(int(chain.max(initial=-1)) + 1)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if not self._pages[BACKBONE].ids:
            for index, pages in enumerate(self._pages):
                for tier in (Tier.DEVICE, Tier.HOST):
                    pages.ids[tier] = np.full(view.pool(tier, index).capacity, -1, dtype=np.int64)
        request: int = getattr(event, "request", NOBODY)  # NOBODY for the end of a copy
        if type(event) is PrefillDone:
            request = self._passes.pop(event.flight, NOBODY)
        for outcome in outcomes:
            self._outcome(outcome, request, event)
        if isinstance(event, PrefillDone | Finished | Retracted):
            self._cache(view.touched.values())
        elif type(event) is StoreDone:
            self._durable(event)
        elif type(event) is Flushed and not any(type(one) is Refused for one in outcomes):
            self._flush()
        if isinstance(event, Finished | Aborted):
            self._chains.pop(event.request, None)
            self._wanted.pop(event.request, None)

    def _outcome(self, outcome: Outcome, request: int, event: Event) -> None:
        if isinstance(outcome, Prefill | Granted | Cached):
            self._write(outcome.request, outcome.tables[BACKBONE])
            if isinstance(outcome, Prefill):
                self._passes[outcome.flight] = outcome.request
        elif isinstance(outcome, Load | Backup):
            source, target = Tier.HOST, Tier.DEVICE
            if isinstance(outcome, Backup):
                source, target = target, source
            for copy in outcome.copies:
                pages = self._of(copy.component)
                ids = pages.ids[source][copy.source]
                pages.ids[target][copy.target] = ids
                pages.arrive(target, ids)
        elif isinstance(outcome, Evicted):
            self._evict(outcome, request, type(event).__name__)
        elif isinstance(outcome, Refused):
            reasons = self.refused.setdefault(outcome.request, {})
            reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
        elif isinstance(outcome, Admitted):
            if outcome.request not in self.misses:
                self.misses[outcome.request] = self._miss(outcome)
                if self._stored:
                    self.caps[outcome.request] = self._caps(outcome)
        elif self._stored:
            self._store(outcome)

    def _of(self, component: str) -> _Pages:
        return self._pages[self._components.index(component)]

    def _write(self, request: int, table: Pages) -> None:
        chain = self._chains.get(request, NO_PAGES)
        count = min(len(chain), len(table))
        ids = self._pages[BACKBONE].ids[Tier.DEVICE]
        ids[table[:count]] = chain[:count]
        ids[table[count:]] = -1  # an answer that the trace does not identify

    def _cache(self, nodes: Iterable[Node]) -> None:
        """These nodes are new or changed: what they have on device is there."""
        for node in nodes:
            first, *others = node.pages[Tier.DEVICE]
            if first is None:
                continue
            ids = self._pages[BACKBONE].ids[Tier.DEVICE][first]
            self._pages[BACKBONE].arrive(Tier.DEVICE, ids)
            for pages, table in zip(self._pages[1:], others, strict=True):
                if table is not None:
                    own = ids if len(table) == len(ids) else ids[-1:]
                    pages.ids[Tier.DEVICE][table] = own
                    pages.arrive(Tier.DEVICE, own)

    def _evict(self, evicted: Evicted, request: int, event: str) -> None:
        pages = self._of(evicted.component)
        ids = pages.ids[evicted.tier][evicted.pages]
        ids = ids[ids >= 0]
        pages.of["now"][ids] &= 0xFF ^ 1 << evicted.tier
        if evicted.tier == Tier.HOST:
            ids = ids[(pages.of["now"][ids] & _DEVICE) == 0]
        elif evicted.demoted:
            return
        pages.leave(ids, self.now_ns(), request, self._at(event), evicted.tier == Tier.HOST)

    def _flush(self) -> None:
        """Device and host have nothing from now on."""
        for pages in self._pages:
            now = pages.of["now"]
            ids = np.flatnonzero(now & (_DEVICE | _HOST))
            on_host = (now[ids] & _HOST) != 0
            now[ids] &= 0xFF ^ (_DEVICE | _HOST)
            pages.leave(ids, self.now_ns(), NOBODY, self._at(Flushed.__name__), on_host)

    def _at(self, event: str) -> int:
        if event not in self._events:
            self._events.append(event)
        return self._events.index(event)

    # -- between host and storage

    def _store(self, outcome: Outcome) -> None:
        if isinstance(outcome, Store):
            pieces = ((self._of(piece.component), piece.pages) for piece in outcome.pieces)
            self._stores[outcome.flight] = [
                (pages, pages.ids[Tier.HOST][table]) for pages, table in pieces
            ]
        elif isinstance(outcome, Fetch):
            self._prefetches[outcome.request].fetch = outcome
            for piece, ids in self._pieces(outcome):
                self._of(piece.component).ids[Tier.HOST][piece.pages] = ids
        elif isinstance(outcome, Lookup):
            self._prefetches[outcome.request].lookup = outcome
        elif isinstance(outcome, Prefetched):
            prefetch = self._prefetches[outcome.request]
            prefetch.ended, fetch = outcome, prefetch.fetch
            if fetch is not None and outcome.fetched_pages:
                end = outcome.first_page + outcome.fetched_pages
                for piece, ids in self._pieces(fetch):
                    brought = ids[: max(0, end - piece.first_page)]
                    self._of(piece.component).arrive(Tier.HOST, brought)
                    self._of(piece.component).arrive(Tier.STORAGE, brought)

    def _pieces(self, fetch: Fetch) -> Iterator[tuple[Piece, Pages]]:
        """Each piece with its ids; -1 where the chain of the request is not known so far."""
        chain = self._chains.get(fetch.request, NO_PAGES)
        for piece in fetch.pieces:
            ids = np.full(len(piece.digests), -1, dtype=np.int64)
            known = chain[piece.first_page : piece.first_page + len(ids)]
            ids[: len(known)] = known
            yield piece, ids

    def _durable(self, event: StoreDone) -> None:
        left = event.pages
        for pages, ids in self._stores.pop(event.flight, ()):
            pages.arrive(Tier.STORAGE, ids[:left])
            failed = ids[left:]
            pages.of["failed"][failed[failed >= 0]] = True
            left = max(0, left - len(ids))

    # -- at an admission

    def _miss(self, admitted: Admitted) -> Miss:
        request, depths = admitted.request, admitted.depths
        hit = admitted.device_pages + admitted.host_pages
        if hit and hit >= self._wanted[request]:
            return Miss(COMPLETE, hit)
        if hit < depths[BACKBONE]:
            least = min(depths)
            if len(depths) == 1:
                return Miss(NOT_LOADED, hit)
            alone = hit == least and depths.count(least) == 1
            return Miss(self._components[depths.index(least)] if alone else TOGETHER, hit)
        if hit >= self._ceiling[request]:
            return Miss(FIRST_SEEN, hit)
        pages, page = self._pages[BACKBONE], int(self._chains[request][hit])
        if not pages.had(Tier.DEVICE, page):
            return Miss(NOT_READY, hit)
        left = pages.of[page]
        when, whom, event = int(left["left_ns"]), int(left["left_for"]), int(left["left_at"])
        return Miss(EVICTED, hit, when, whom, bool(left["from_host"]), self._events[event])

    def _caps(self, admitted: Admitted) -> Caps:
        request, chain = admitted.request, self._chains[admitted.request]
        prefetch = self._prefetches.pop(request, _Prefetch())
        wanted = min(self._wanted[request], int(self._ceiling[request]))
        on_device = admitted.device_pages
        hit = on_device + admitted.host_pages
        depths = {Tier.DEVICE: on_device, Tier.HOST: hit, Tier.STORAGE: hit}
        tiers = {
            tier.name.lower(): {
                name: pages.cap(tier, int(chain[depth])) if depth < wanted else FIRST_SEEN
                for name, pages in zip(self._components, self._pages, strict=True)
            }
            for tier, depth in depths.items()
        }
        return Caps(tiers, self._reason(int(chain[hit]), hit, prefetch) if hit < wanted else "")

    def _reason(self, page: int, hit: int, prefetch: _Prefetch) -> str:
        """Why the last tier, storage, did not bring the page behind a hit."""
        pages = self._pages[BACKBONE]
        if pages.has(Tier.DEVICE, page) or pages.has(Tier.HOST, page):
            return ""
        if pages.cap(Tier.HOST, page) == NOT_READY:
            return NOT_READY
        lookup, ended = prefetch.lookup, prefetch.ended
        if ended is None or hit < ended.first_page + ended.fetched_pages:
            return WAITING
        if ended.reason in _ENDS:
            return str(ended.reason)
        if ended.reason == "short":
            status = self.short(prefetch.fetch.flight) if prefetch.fetch is not None else None
            return _SHORT.get(status, "failed") if status is not None else "failed"
        cap = pages.cap(Tier.STORAGE, page)
        if cap == STORE_FAILED:
            return cap
        if lookup is not None and self.short(lookup.flight) is not None:
            return "failed"  # nobody knows what it has
        if cap == THERE:  # the lookup failed, or the core does not trust the page any more
            cap = "failed"
        place = hit - lookup.first_page if lookup is not None else -1
        if lookup is not None and 0 <= place < len(lookup.digests):
            fate = self.fate(self._components[BACKBONE], lookup.digests[place])
            return _FATES.get(fate, cap)
        return WAITING if hit >= ended.first_page + ended.asked_pages else cap
