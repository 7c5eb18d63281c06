"""Rounds of conversations: no turn begins before all turns before it have ended, and then tiers are
emptied.

It is for measuring what is left after the memory was lost. What is on its way to host or storage
gets there first. Does not know which turn a request is (see traces/replaying/account) or serve it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hicache.core.actions import Outcome
from hicache.core.events import Event, EvictWanted, Flushed
from hicache.core.types import Tier
from hicache.core.view import CoreView

from .clock import Timer
from .workload import Job

_PAUSE_NS = 1_000_000
_MOST_PAUSES = 60_000  # a store that hangs would keep the next round waiting for ever


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """turns: of each request, by its index. tiers: what is emptied between two rounds."""

    turns: Sequence[int]
    tiers: tuple[Tier, ...]


def empty(tiers: Sequence[Tier], view: CoreView, feed: Callable[[Event], list[Outcome]]) -> None:
    """Evicts everything from these tiers. Nothing may run."""
    if len(tiers) > 1:
        feed(Flushed())
        return
    for tier in tiers:
        for index, component in enumerate(view.components):
            if capacity := view.pool(tier, index).capacity:
                feed(EvictWanted(tier, component.name, capacity))


class Rounds:
    """See the module. release: called with each request that may follow the one before it now."""

    def __init__(
        self,
        options: RoundOptions,
        jobs: Iterable[Job],
        clock: Timer,
        view: CoreView,
        feed: Callable[[Event], list[Outcome]],
        release: Callable[[Job], None],
    ) -> None:
        self._options = options
        self._clock = clock
        self._view = view
        self._feed = feed
        self._release = release
        self._left = Counter(options.turns[job.index] for job in jobs)
        self._turn = 0
        self._held: list[Job] = []

    def ended(self, job: Job, followers: Sequence[Job]) -> None:
        """A request has ended, and these follow it."""
        turns = self._options.turns
        self._left[turns[job.index]] -= 1
        for follower in followers:
            if turns[follower.index] <= self._turn:
                self._release(follower)
            else:
                self._held.append(follower)
        if not self._left[self._turn] and self._held:
            self._wait(_MOST_PAUSES)

    def _wait(self, pauses: int) -> None:
        """Begins the next round when nothing is in flight."""
        if self._view.flights and pauses:
            self._clock.after(_PAUSE_NS, lambda: self._wait(pauses - 1))
            return
        empty(self._options.tiers, self._view, self._feed)
        turns = self._options.turns
        self._turn = min(turns[job.index] for job in self._held)
        held, self._held = self._held, []
        for job in held:
            if turns[job.index] <= self._turn:
                self._release(job)
            else:
                self._held.append(job)
