"""What a user wants of the cache beside requests: prefixes that stay, and a time after which unused
copies go.

The core has no clock, so this tells it when a period has ended (`TimePassed`), so many times in the
time to live that a copy goes at most a sixth of that late. Does not decide what goes; see the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hicache.core.actions import Outcome
from hicache.core.events import Event, PinWanted, TimePassed
from hicache.core.types import Tier

from .clock import Clock
from .workload import Workload

PERIODS = 6  # in a time to live


@dataclass(frozen=True, slots=True)
class PinnedPrefix:
    """The first `pages` pages of a request's prompt stay on a tier. place: of the request in the
    trace."""

    place: int
    pages: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class WantOptions:
    """ttl_ns: 0 if nothing expires."""

    ttl_ns: int = 0
    pins: tuple[PinnedPrefix, ...] = ()

    @property
    def period_ns(self) -> int:
        return max(1, self.ttl_ns // PERIODS)


NO_WANTS = WantOptions()


class Wants:
    """Tells a core what a user wants. feed: passes an event to the core."""

    def __init__(self, options: WantOptions, feed: Callable[[Event], list[Outcome]]) -> None:
        self._options = options
        self._feed = feed
        self._ended = 0  # periods

    def pin(self, workload: Workload) -> None:
        """Before the first request arrives."""
        if not self._options.pins:
            return
        jobs = {job.index: job for job in workload.jobs}
        for number, one in enumerate(self._options.pins):
            key = workload.key(jobs[one.place], one.pages * workload.page_size)
            self._feed(PinWanted(number, key, one.tier))

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
