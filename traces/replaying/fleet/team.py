"""The observers of a replay with several replicas: those that count for all, and those of each.

Does not run a replay (see run).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.watch import Watch, excuses_by_check
from sim.fleet.options import FleetOptions

from ...formats.base import Paged
from ..account import Tokens, ceiling_of
from ..defaults import BACKBONE
from ..following.history import NOT_READY, OTHER_REPLICA, History
from ..observing.observers import Observers
from ..observing.until import Until
from ..run import Checks, ComponentUse
from ..settings import Settings
from ..tally import Tally


class Team:
    """The observers of all replicas: some count for all together, others are one for each."""

    def __init__(
        self,
        whole: Paged,
        paged: Paged,
        settings: Settings,
        fleet: FleetOptions,
        watch: Watch | None,
        follow: bool,
        until: int | None,
    ) -> None:
        timed = settings.mode == "timed"
        self.ceiling = ceiling_of(paged, whole_prompts=not timed)
        self.counting = Observers(settings, self.ceiling, None)
        self.watches: list[Watch] = []
        self.histories: list[History] = []
        self.tallies = [Tally() for _ in range(fleet.members)]
        self.all: list[list[Observer]] = []
        pages = -(-self.ceiling // paged.page_size)
        stored = settings.storage is not None
        for place in range(fleet.members):
            seen: list[Observer] = [*self.counting.all, self.tallies[place]]
            if watch is not None:
                own = Watch(watch.level, watch.replay_command) if place else watch
                self.watches.append(own)
                seen.append(own)
            if (follow or stored) and place < fleet.replicas:
                history = History(whole, settings.core.components, pages, not timed, stored)
                self.histories.append(history)
                seen.append(history)
            if until is not None and _serves_last(whole, fleet, place, until):
                seen.append(Until(until))
            self.all.append(seen)

    @contextmanager
    def stories(self) -> Iterator[None]:
        """Adds the story of the replica that an error names."""
        try:
            yield
        except CallerError:
            raise
        except Exception as error:
            for place, watch in enumerate(self.watches):
                notes = getattr(error, "__notes__", ())
                if f"replica: {place}" in notes and "\nstory:" not in str(error):
                    told = watch.story_of(getattr(error, "about", ()))
                    error.add_note("\n".join(["story:", *(f"    {line}" for line in told)]))
            raise

    def finish(self, views: Sequence[CoreView]) -> None:
        for watch, view in zip(self.watches, views, strict=False):
            watch.finish(view)

    def checks(self, settings: Settings, byte_checks: int = 0, access_checks: int = 0) -> Checks:
        """Those of all replicas together."""
        watches = self.watches
        if not watches:
            return Checks(settings.check)
        return Checks(
            settings.check,
            sum(one.operations for one in watches),
            sum(one.incremental for one in watches),
            sum(one.full for one in watches),
            sum(one.violations for one in watches),
            byte_checks,
            access_checks,
            watches[0].unjudged,
            excuses_by_check(sum((one.excuses for one in watches[1:]), watches[0].excuses)),
        )

    def components(
        self, settings: Settings, views: Sequence[CoreView] | None
    ) -> tuple[ComponentUse, ...]:
        """The use of each component's pools in all replicas. views: None after an interrupt."""
        if views is None:
            return self.counting.components(settings, None)
        each = [self.counting.components(settings, view) for view in views]
        return tuple(
            replace(
                uses[0],
                capacity=(uses[0].capacity[0] * len(uses), uses[0].capacity[1] * len(uses)),
                cached=_sum([use.cached for use in uses]),
                garbage=_sum([use.garbage for use in uses]),
            )
            for uses in zip(*each, strict=True)
        )

    def evicted(self, place: int) -> tuple[int, int]:
        """Pages of full attention that one replica evicted from (device, host)."""
        evicted = self.tallies[place].evicted
        return evicted[Tier.DEVICE, BACKBONE], evicted[Tier.HOST, BACKBONE]

    def history(self, whole: Paged, ceilings: Tokens) -> History | None:
        """Those of all replicas in one. ceilings: tokens that each request could hit where it was
        sent. A hit that ended there is told apart from one that another request still computes."""
        if not self.histories:
            return None
        merged = self.histories[0]
        for one in self.histories[1:]:
            merged.misses |= one.misses
            merged.refused |= one.refused
            merged.caps |= one.caps
        size = whole.page_size
        for request, miss in merged.misses.items():
            if miss.ended_by == NOT_READY and miss.hit_pages * size >= ceilings[request]:
                merged.misses[request] = miss._replace(ended_by=OTHER_REPLICA)
        return merged


def _sum(pairs: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    known = [pair for pair in pairs if pair is not None]
    if len(known) < len(pairs):
        return None
    return sum(pair[0] for pair in known), sum(pair[1] for pair in known)


def _serves_last(whole: Paged, fleet: FleetOptions, place: int, request: int) -> bool:
    """Whether this replica would serve the last token of a request that it gets."""
    if not fleet.decode or place >= fleet.replicas:
        return True
    return whole.jobs[request].output_length <= 1
