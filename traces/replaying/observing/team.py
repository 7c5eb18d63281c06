"""The observers of a replay: those that count for all replicas, and those of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.accounts.accounts import Accounts
from invariants.watch import Watch
from sim.fleet.options import FleetOptions

from ...formats.base import Paged
from ..account import Tokens
from ..defaults import BACKBONE
from ..following.copies import Copies
from ..following.history import NOT_READY, OTHER_REPLICA, History
from ..run import Checks, ComponentUse
from ..settings import Settings
from ..tally import Tally
from .observers import Observers
from .until import Until


class Team:
    """The observers of all replicas: some count for all together, others are one for each.

    ceiling: see `account`. follow: keep the history of every page, and of a single replica with a
    clock the time of every copy. until: stop when this request has been served.
    """

    def __init__(
        self,
        whole: Paged,
        settings: Settings,
        ceiling: Tokens,
        watch: Watch | None,
        follow: bool = False,
        until: int | None = None,
    ) -> None:
        timed = settings.mode == "timed"
        fleet = settings.fleet or FleetOptions()
        self.counting = Observers(settings, ceiling)
        self.watches: list[Watch] = []
        self.histories: list[History] = []
        self.accounts: Accounts | None = None
        self.copies: Copies | None = None
        self.all: list[list[Observer]] = []
        one = fleet.members == 1
        self.tallies = [self.counting.tally if one else Tally() for _ in range(fleet.members)]
        pages = -(-ceiling // settings.core.page_size)
        stored = settings.storage is not None
        for place in range(fleet.members):
            seen: list[Observer] = [*self.counting.all, *([] if one else [self.tallies[place]])]
            if watch is not None:
                own = watch
                if place:
                    own = Watch(watch.level, watch.replay_command, most_pages=watch.most_pages)
                self.watches.append(own)
                seen.append(own)
            if (follow or stored) and place < fleet.replicas:
                history = History(whole, settings.core.components, pages, not timed, stored)
                self.histories.append(history)
                seen.append(history)
            if one and follow and timed:
                self.copies = Copies(settings.page_bytes_total, settings.value_bytes)
                seen.append(self.copies)
            if until is not None and _serves_last(whole, fleet, place, until):
                seen.append(Until(until))
            self.all.append(seen)

    def count_twice(self, accounts: Accounts) -> None:
        """Everything is counted a second time, of a single replica."""
        self.accounts = accounts
        self.all[0].append(accounts)

    def set_clock(self, now_ns: Callable[[], int]) -> None:
        for history in self.histories:
            history.now_ns = now_ns
        for one in (self.copies, self.accounts):
            if one is not None:
                one.now_ns = now_ns

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
            sum(one.specified for one in watches),
            next((one.unjudged for one in watches if one.unjudged), ""),
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
