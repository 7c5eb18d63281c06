"""Requests that wait for their prefetch: out of the queue until it has ended, and at most so long.

A request whose admission is refused with "fetching" leaves the queue, so that those behind it are
admitted. When its prefetch has ended, it goes back to the front of the queue. A time limit from its
arrival ends the wait: the core has no clock, so the engine tells it (`PrefetchLimitReached`). Does
not move pages (see sim/storage) or decide what is prefetched (see the core).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hicache.core.actions import Matched, Outcome, Prefetched
from hicache.core.events import Event, PrefetchLimitReached
from hicache.core.types import RequestId

from ..clock import Timer
from ..schedulers.base import Scheduler
from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class PrefetchLimit:
    """How long a request may wait for its prefetch: base_ns, and token_ns for each prompt token
    that was not cached when it arrived."""

    base_ns: int
    token_ns: int = 0


class Prefetching:
    """See the module. limit: None if no request waits. feed: passes an event to the core."""

    def __init__(
        self,
        clock: Timer,
        waiting: Scheduler[Sequence],
        limit: PrefetchLimit | None,
        feed: Callable[[Event], list[Outcome]],
    ) -> None:
        self._clock = clock
        self._waiting = waiting
        self._limit = limit
        self._feed = feed
        self._pending: dict[RequestId, Sequence] = {}
        self._parked: dict[RequestId, Sequence] = {}  # in the order in which they left the queue

    def announce(self, sequence: Sequence, arrival: Event, page_size: int) -> None:
        """Tells the core of a request, and begins its time limit if a prefetch was begun."""
        index = sequence.job.index
        self._pending[index] = sequence
        outcomes = self._feed(arrival)
        if index not in self._pending:
            return
        matched = next(outcome for outcome in outcomes if type(outcome) is Matched)
        assert isinstance(matched, Matched)
        cached = (matched.device_pages + matched.host_pages) * page_size
        missing = (sequence.length - 1) // page_size * page_size - cached
        if missing <= 0:
            del self._pending[index]
        elif self._limit is not None:
            limit_ns = self._limit.base_ns + self._limit.token_ns * missing
            self._clock.after(limit_ns, lambda: self._reached(index))

    def _reached(self, index: RequestId) -> None:
        if index in self._pending:
            self._feed(PrefetchLimitReached(index))

    def ended(self, told: Prefetched, sequence: Sequence) -> None:
        """The core says that the prefetch of a request has ended."""
        self._pending.pop(told.request, None)
        sequence.prefetched = told.first_page, told.fetched_pages

    def admitted(self, sequence: Sequence) -> None:
        self._pending.pop(sequence.job.index, None)

    def park(self, sequence: Sequence) -> None:
        """Takes a request that waits for its prefetch out of the queue."""
        self._waiting.remove(sequence)
        self._parked[sequence.job.index] = sequence

    def unpark(self) -> None:
        """Puts those whose prefetch has ended back to the front of the queue, in their order."""
        for index, sequence in reversed(list(self._parked.items())):
            if index not in self._pending:
                del self._parked[index]
                self._waiting.push_front(sequence)
