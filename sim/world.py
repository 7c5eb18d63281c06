"""One simulated run: a replica with its own clock, a workload's arrivals, rounds, and retention.

In rounds no turn begins before all turns before it have ended, and then tiers are emptied: for
measuring what is left after the memory was lost. Retention is prefixes that stay, and a
time after which unused copies go: the core has no clock, so it is told when a period has ended
(`TimePassed`), so many times in the time to live that a copy goes at most a sixth of that late.
"""

from collections import Counter, abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hicache.core.actions import Outcome
from hicache.core.events import Event, EvictWanted, Flushed, PinWanted, TimePassed
from hicache.core.types import Tier
from hicache.core.view import CoreView

from .arrivals import Arrivals
from .clock import Clock, Timer
from .engine.sequence import RequestResult, Sequence
from .replica import Replica, TimedResult
from .workload import Job, SenderOptions, Workload

_PAUSE_NS = 1_000_000
_MOST_PAUSES = 60_000  # a store that hangs would keep the next round waiting for ever


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """turns: of each request, by its index. tiers: what is emptied between two rounds."""

    turns: abc.Sequence[int]
    tiers: tuple[Tier, ...]


def empty(
    tiers: abc.Sequence[Tier], view: CoreView, feed: Callable[[Event], list[Outcome]]
) -> None:
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
        self._waiting: list[Job] = []

    def ended(self, job: Job, followers: abc.Sequence[Job]) -> None:
        """A request has ended, and these follow it."""
        turns = self._options.turns
        self._left[turns[job.index]] -= 1
        for follower in followers:
            if turns[follower.index] <= self._turn:
                self._release(follower)
            else:
                self._waiting.append(follower)
        if not self._left[self._turn] and self._waiting:
            self._wait(_MOST_PAUSES)

    def _wait(self, pauses: int) -> None:
        """Begins the next round when nothing is in flight."""
        if self._view.transfers and pauses:
            self._clock.after(_PAUSE_NS, lambda: self._wait(pauses - 1))
            return
        empty(self._options.tiers, self._view, self._feed)
        turns = self._options.turns
        self._turn = min(turns[job.index] for job in self._waiting)
        jobs, self._waiting = self._waiting, []
        for job in jobs:
            if turns[job.index] <= self._turn:
                self._release(job)
            else:
                self._waiting.append(job)


PERIODS = 6  # in a time to live


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """The first `pages` pages of a request's prompt stay on a tier. place: of the request in the
    trace."""

    place: int
    pages: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """ttl_ns: 0 if nothing expires."""

    ttl_ns: int = 0
    pins: tuple[PinnedPrefix, ...] = ()

    @property
    def period_ns(self) -> int:
        return max(1, self.ttl_ns // PERIODS)


NO_RETENTION = RetentionOptions()


class Retention:
    """Tells a core what a user wants. feed: passes an event to the core."""

    def __init__(self, options: RetentionOptions, feed: Callable[[Event], list[Outcome]]) -> None:
        self._options = options
        self._feed = feed
        self._ended = 0  # periods

    def pin(self, workload: Workload) -> None:
        """Before the first request arrives."""
        if not self._options.pins:
            return
        jobs = {job.index: job for job in workload.jobs}
        for number, pinned_prefix in enumerate(self._options.pins):
            key = workload.key(jobs[pinned_prefix.place], pinned_prefix.pages * workload.page_size)
            self._feed(PinWanted(number, key, pinned_prefix.tier))

    def on(self, clock: Clock) -> None:
        """Lets time pass by a clock, as long as something else is to happen."""
        if self._options.ttl_ns:
            clock.after(self._options.period_ns, lambda: self._period(clock))

    def _period(self, clock: Clock) -> None:
        if clock.next_ns() >= 0:
            self._feed(TimePassed())
            clock.after(self._options.period_ns, lambda: self._period(clock))

    def until(self, time_ns: int) -> None:
        """Lets time pass up to this time, where there is no clock. Of a long time without requests,
        only so many periods are told that everything has expired."""
        if not self._options.ttl_ns:
            return
        ended = time_ns // self._options.period_ns
        for _ in range(min(ended - self._ended, PERIODS + 1)):
            self._feed(TimePassed())
        self._ended = max(ended, self._ended)


class World(Replica):
    """A replica with its arrivals; see the module. of_replica, rest: of `Replica`. progress: called
    with (ended, all) when a request ends. sender: how they are sent, if not when they arrive."""

    def __init__(
        self,
        *of_replica: Any,
        rounds: RoundOptions | None = None,
        sender: SenderOptions | None = None,
        retention: RetentionOptions | None = None,
        progress: Callable[[int, int], None] = lambda ended, jobs: None,
        **rest: Any,
    ) -> None:
        super().__init__(*of_replica, **rest)
        workload, options = self._workload, self._options
        self._progress = progress
        self._arrivals = Arrivals(workload, self.clock, options, self.engine.arrive, sender)
        self._rounds: Rounds | None = None
        if rounds is not None:
            feed, follow = self.driver.feed, self._arrivals.follow
            self._rounds = Rounds(rounds, workload.jobs, self.clock, self.core.view, feed, follow)
        self._retention = Retention(retention or RetentionOptions(), self.driver.feed)

    def run(self) -> TimedResult:
        """Runs all requests. After an exception (also Ctrl-C), `result` returns the results so far.

        Raises StuckError when requests are left and nothing is scheduled.
        """
        self._retention.pin(self._workload)
        self._arrivals.begin()
        self._retention.on(self.clock)
        self.clock.finish()
        if self.ended < len(self._workload.jobs):
            raise self.stuck()
        self.close()
        return self.result()

    def last(self) -> RequestResult:
        """The request that ended last."""
        return next(reversed(self.results.values()))

    def _ended(self, sequence: Sequence) -> None:
        super()._ended(sequence)
        followers = self._arrivals.after(sequence.job)
        if self._rounds is not None:
            self._rounds.ended(sequence.job, followers)
        else:
            for job in followers:
                self._arrivals.follow(job)
        self._progress(self.ended, len(self._workload.jobs))
