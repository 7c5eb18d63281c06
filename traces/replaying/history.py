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
    swa, mamba   the component that ended it: its window was evicted, or it stored no state there

Pages are followed by their ids in the trace (`Paged.chain`). A page number of a tier stands for the
id that was last written there, which is right for every page that the tree has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    Load,
    Outcome,
    Prefill,
    Refused,
)
from hicache.core.events import Aborted, Arrived, Event, Finished, PrefillDone, Retracted
from hicache.core.types import BACKBONE, NO_PAGES, Pages, Tier
from hicache.core.view import CoreView

from ..formats.base import Paged

COMPLETE, FIRST_SEEN, EVICTED, NOT_READY = "complete", "first_seen", "evicted", "not_ready"
NOT_LOADED, TOGETHER = "not_loaded", "together"
NEVER_NS = -1
NOBODY = -1


class Miss(NamedTuple):
    """What ended the hit of one request, with the depth in pages.

    evicted_ns, evicted_for: when the next page left the last tier, and the request that was given
    the room, if `ended_by` is evicted; else NEVER_NS and NOBODY. from_host: whether that tier was
    host memory.
    """

    ended_by: str
    hit_pages: int
    evicted_ns: int = NEVER_NS
    evicted_for: int = NOBODY
    from_host: bool = False


class History:
    """The observer. ceiling: pages per request that an unbounded cache would hit. now_ns: the time.

    misses: by request. refused: by request and reason, how often it was asked to wait.
    """

    def __init__(
        self,
        trace: Paged,
        components: Sequence[str],
        ceiling: NDArray[np.int32],
        whole_prompts: bool,
    ) -> None:
        self.now_ns: Callable[[], int] = lambda: NEVER_NS
        self.misses: dict[int, Miss] = {}
        self.refused: dict[int, dict[str, int]] = {}
        self._trace = trace
        self._components = tuple(components)
        self._ceiling = ceiling
        self._whole_prompts = whole_prompts or trace.knows_output
        self._chains: dict[int, Pages] = {}
        self._wanted: dict[int, int] = {}
        self._passes: dict[int, int] = {}  # the request of each pass in flight
        # by page id of the trace
        self._was_cached = np.zeros(1 << 12, dtype=np.bool_)
        self._on_device = np.zeros(1 << 12, dtype=np.bool_)
        self._gone_ns = np.full(1 << 12, NEVER_NS, dtype=np.int64)
        self._gone_for = np.full(1 << 12, NOBODY, dtype=np.int64)
        self._gone_from_host = np.zeros(1 << 12, dtype=np.bool_)
        # by page number of a tier
        self._ids: dict[Tier, Pages] = {Tier.DEVICE: NO_PAGES, Tier.HOST: NO_PAGES}

    def on_event(self, event: Event, view: CoreView) -> None:
        if type(event) is Arrived:
            self._arrive(event)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if not len(self._ids[Tier.DEVICE]):
            for tier in self._ids:
                self._ids[tier] = np.full(view.pool(tier).capacity, -1, dtype=np.int64)
        cause = self._request_of(event)
        for outcome in outcomes:
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
                self._evict(outcome, cause)
            elif kind is Refused:
                assert isinstance(outcome, Refused)
                reasons = self.refused.setdefault(outcome.request, {})
                reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
            elif kind is Admitted:
                assert isinstance(outcome, Admitted)
                if outcome.request not in self.misses:
                    self.misses[outcome.request] = self._miss(outcome)
        if isinstance(event, PrefillDone | Finished | Retracted):
            self._note_cached(view)
        if isinstance(event, Finished | Aborted):
            self._chains.pop(event.request, None)
            self._wanted.pop(event.request, None)

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
        most = int(chain.max()) + 1 if len(chain) else 0
        if most > len(self._was_cached):
            more = max(most, 2 * len(self._was_cached)) - len(self._was_cached)
            for name, empty in (
                ("_was_cached", False),
                ("_on_device", False),
                ("_gone_ns", NEVER_NS),
                ("_gone_for", NOBODY),
                ("_gone_from_host", False),
            ):
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.full(more, empty, dtype=old.dtype))))

    def _write(self, request: int, table: Pages) -> None:
        chain = self._chains.get(request, NO_PAGES)
        count = min(len(chain), len(table))
        self._ids[Tier.DEVICE][table[:count]] = chain[:count]
        self._ids[Tier.DEVICE][table[count:]] = -1  # an answer that the trace does not identify

    def _copy(self, action: Load | Backup) -> None:
        source, target = Tier.HOST, Tier.DEVICE
        if type(action) is Backup:
            source, target = target, source
        for copy in action.copies:
            if copy.component == self._components[BACKBONE]:
                ids = self._ids[source][copy.source]
                self._ids[target][copy.target] = ids
                if target == Tier.DEVICE:
                    self._on_device[ids[ids >= 0]] = True

    def _evict(self, evicted: Evicted, request: int) -> None:
        if evicted.component != self._components[BACKBONE]:
            return
        ids = self._ids[evicted.tier][evicted.pages]
        ids = ids[ids >= 0]
        if evicted.tier == Tier.DEVICE:
            self._on_device[ids] = False
            if evicted.demoted:
                return
        else:
            ids = ids[~self._on_device[ids]]
        self._gone_ns[ids] = self.now_ns()
        self._gone_for[ids] = request
        self._gone_from_host[ids] = evicted.tier == Tier.HOST

    def _note_cached(self, view: CoreView) -> None:
        """Notes the pages of the nodes that the event created or changed."""
        for node in view.touched.values():
            pages = node.pages[Tier.DEVICE][BACKBONE]
            if pages is not None:
                ids = self._ids[Tier.DEVICE][pages]
                ids = ids[ids >= 0]
                self._was_cached[ids] = True
                self._on_device[ids] = True

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
        if not self._was_cached[page]:
            return Miss(NOT_READY, hit)
        gone_ns, gone_for = int(self._gone_ns[page]), int(self._gone_for[page])
        return Miss(EVICTED, hit, gone_ns, gone_for, bool(self._gone_from_host[page]))

    def _other(self, depths: tuple[int, ...], hit: int) -> str:
        """What ended a hit before the end of full attention."""
        least = min(depths)
        if len(depths) == 1:
            return NOT_LOADED
        if hit < least or depths.count(least) > 1:
            return TOGETHER
        return self._components[depths.index(least)]
