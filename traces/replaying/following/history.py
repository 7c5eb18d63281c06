"""What became of every page of the trace, so that a miss can be explained.

An observer. It is attached only where somebody asks (`--requests`, `--why`), because it follows
the pages of every table. It tells what ended the hit of each request at its first admission:

    complete     the whole prompt hit, except for what an engine must compute
    first_seen   no earlier request of the trace shares more
    evicted      the next page was in the cache before, and was evicted from the last tier
    not_ready    the next page was not in the cache yet: an earlier request still computes it, or
                 waits for that
    not_loaded   host has more, and it was not loaded (`--load-threshold`, `--load-quota`)
    together     several components end there
    too_large    the device cannot hold the request, so it was computed without the cache
    other_replica  of several replicas, only others were sent a request with the next page
    swa, mamba   the component that ended it: its window was evicted, or it stored no state there

With storage, `caps` says why each tier and pool did not have more. Where pages are is followed in
page_fates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from hicache.core.types import BACKBONE, NO_PAGES, FlightId, Pages, Tier
from hicache.core.view import CoreView

from ...formats.base import Paged
from .caps import Asked, Caps, Prefetch, caps_of
from .page_fates import NEVER_NS, NOBODY, PageFates

COMPLETE, FIRST_SEEN, EVICTED, NOT_READY = "complete", "first_seen", "evicted", "not_ready"
NOT_LOADED, TOGETHER, TOO_LARGE = "not_loaded", "together", "too_large"
OTHER_REPLICA = "other_replica"


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


class History:
    """The observer. ceiling: pages per request that an unbounded cache would hit. now_ns: the time.

    misses: by request. refused: by request and reason, how often it was asked to wait. caps: by
    request, with storage. fates: where every page is. asked: what the store can say.
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
        self.misses: dict[int, Miss] = {}
        self.refused: dict[int, dict[str, int]] = {}
        self.caps: dict[int, Caps] = {}
        self.fates = PageFates(components)
        self._trace = trace
        self._components = tuple(components)
        self._ceiling = ceiling
        self._whole_prompts = whole_prompts or trace.knows_output
        self._stored = stored
        self.asked = Asked()
        self._chains: dict[int, Pages] = {}
        self._wanted: dict[int, int] = {}
        self._passes: dict[int, int] = {}  # the request of each pass in flight
        self._stores: dict[FlightId, list[tuple[int, Pages]]] = {}  # component and ids of pieces
        self._prefetches: dict[int, Prefetch] = {}  # by request

    def on_event(self, event: Event, view: CoreView) -> None:
        if type(event) is Arrived:
            self._arrive(event)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.fates.begin(view)
        cause = self._request_of(event)
        for outcome in outcomes:
            self._outcome(outcome, cause, event)
        if isinstance(event, PrefillDone | Finished | Retracted):
            self.fates.cache(view.touched.values())
        elif type(event) is StoreDone:
            self._durable(event)
        elif type(event) is Flushed and not any(type(one) is Refused for one in outcomes):
            self.fates.flush(self.now_ns(), Flushed.__name__)
        if isinstance(event, Finished | Aborted):
            self._chains.pop(event.request, None)
            self._wanted.pop(event.request, None)

    def _outcome(self, outcome: Outcome, cause: int, event: Event) -> None:
        kind = type(outcome)
        if kind is Prefill or kind is Granted or kind is Cached:
            assert isinstance(outcome, Prefill | Granted | Cached)
            self._write(outcome.request, outcome.tables[BACKBONE])
            if type(outcome) is Prefill:
                self._passes[outcome.flight] = outcome.request
        elif kind is Load or kind is Backup:
            assert isinstance(outcome, Load | Backup)
            self._copy(outcome)
        elif kind is Evicted:
            assert isinstance(outcome, Evicted)
            self.fates.evict(outcome, self.now_ns(), cause, type(event).__name__)
        elif kind is Refused:
            assert isinstance(outcome, Refused)
            reasons = self.refused.setdefault(outcome.request, {})
            reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
        elif kind is Admitted:
            assert isinstance(outcome, Admitted)
            if outcome.request not in self.misses:
                self._admit(outcome)
        elif self._stored:
            self._store(outcome)

    def _store(self, outcome: Outcome) -> None:
        """What happens between host and storage."""
        fates = self.fates
        if isinstance(outcome, Store):
            pieces = ((fates.index(piece.component), piece.pages) for piece in outcome.pieces)
            self._stores[outcome.flight] = [
                (index, fates.ids_of(Tier.HOST, index, pages)) for index, pages in pieces
            ]
        elif isinstance(outcome, Fetch):
            self._prefetch(outcome.request).fetch = outcome
            for index, _, pages, ids in self._pieces(outcome):
                fates.write(Tier.HOST, index, pages, ids)
        elif isinstance(outcome, Lookup):
            self._prefetch(outcome.request).lookup = outcome
        elif isinstance(outcome, Prefetched):
            prefetch = self._prefetch(outcome.request)
            prefetch.told, fetch = outcome, prefetch.fetch
            if fetch is not None and outcome.fetched_pages:
                end = outcome.first_page + outcome.fetched_pages
                for index, first, _, ids in self._pieces(fetch):
                    fates.arrive(Tier.HOST, index, ids[: max(0, end - first)])
                    fates.arrive(Tier.STORAGE, index, ids[: max(0, end - first)])

    def _prefetch(self, request: int) -> Prefetch:
        return self._prefetches.setdefault(request, Prefetch())

    def _pieces(self, fetch: Fetch) -> Iterator[tuple[int, int, Pages, Pages]]:
        """(component, first depth, host pages, ids) of each piece."""
        chain = self._chains.get(fetch.request, NO_PAGES)
        for piece in fetch.pieces:
            last = piece.first_page + len(piece.digests)
            ids = np.full(len(piece.digests), -1, dtype=np.int64)
            known = chain[piece.first_page : last]
            ids[: len(known)] = known
            yield self.fates.index(piece.component), piece.first_page, piece.pages, ids

    def _durable(self, event: StoreDone) -> None:
        left = event.pages
        for index, ids in self._stores.pop(event.flight, ()):
            self.fates.arrive(Tier.STORAGE, index, ids[:left])
            self.fates.fail(index, ids[left:])
            left = max(0, left - len(ids))

    def _request_of(self, event: Event) -> int:
        """The request that an event of the scheduler is about; NOBODY for the end of a copy."""
        if type(event) is PrefillDone:
            return self._passes.pop(event.flight, NOBODY)
        request: int = getattr(event, "request", NOBODY)
        return request

    def _arrive(self, event: Arrived) -> None:
        job = self._trace.jobs[event.request]
        chain = self._trace.chain(job)
        if not self._whole_prompts:  # the last page belongs to the answer, too
            chain = chain[: job.input_length // self._trace.page_size]
        self._chains[event.request] = chain
        self._wanted[event.request] = min(event.match_pages, event.key.pages)
        self.fates.know(chain)

    def _write(self, request: int, table: Pages) -> None:
        chain = self._chains.get(request, NO_PAGES)
        count = min(len(chain), len(table))
        self.fates.write(Tier.DEVICE, BACKBONE, table[:count], chain[:count])
        # an answer that the trace does not identify
        self.fates.write(Tier.DEVICE, BACKBONE, table[count:], np.full(1, -1, dtype=np.int64))

    def _copy(self, action: Load | Backup) -> None:
        source, target = Tier.HOST, Tier.DEVICE
        if type(action) is Backup:
            source, target = target, source
        for copy in action.copies:
            index = self.fates.index(copy.component)
            ids = self.fates.ids_of(source, index, copy.source)
            self.fates.write(target, index, copy.target, ids)
            self.fates.arrive(target, index, ids)

    def _admit(self, admitted: Admitted) -> None:
        request = admitted.request
        self.misses[request] = self._miss(admitted)
        if self._stored:
            self.caps[request] = caps_of(
                self.fates,
                self._components,
                self._chains[request],
                admitted,
                min(self._wanted[request], int(self._ceiling[request])),
                self._prefetches.pop(request, Prefetch()),
                self.asked,
            )

    def _miss(self, admitted: Admitted) -> Miss:
        request, depths = admitted.request, admitted.depths
        hit = admitted.device_pages + admitted.host_pages
        if hit and hit >= self._wanted[request]:
            return Miss(COMPLETE, hit)
        if hit < depths[BACKBONE]:
            return Miss(self._other(depths, hit), hit)
        if hit >= self._ceiling[request]:
            return Miss(FIRST_SEEN, hit)
        page = int(self._chains[request][hit])
        if not self.fates.had(Tier.DEVICE, BACKBONE, page):
            return Miss(NOT_READY, hit)
        gone_ns, gone_for, from_host, event = self.fates.gone(BACKBONE, page)
        return Miss(EVICTED, hit, gone_ns, gone_for, from_host, event)

    def _other(self, depths: tuple[int, ...], hit: int) -> str:
        """What ended a hit before the end of full attention."""
        least = min(depths)
        if len(depths) == 1:
            return NOT_LOADED
        if hit < least or depths.count(least) > 1:
            return TOGETHER
        return self._components[depths.index(least)]
