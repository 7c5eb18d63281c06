"""The observers of a replay: those that count for all replicas, and those of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hicache.core.actions import Backup, Evicted, Load, Outcome, Refused
from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.books.distances import garbage_report
from invariants.books.kinds import KNOWN
from invariants.watch import Watch
from sim.fleet.options import FleetOptions

from ...formats.base import Paged
from ...results.record import Checks, Component, Pair
from ..account import Lookups, Prefetches, Tokens
from ..config import ReplayConfig
from ..defaults import BACKBONE
from ..following import NOT_READY, OTHER_REPLICA, History
from ..timeline import Copies, Timeline
from .ending import Until


class Tally:
    """An observer that counts pages moved and evicted, and refusals, per component.

    loaded, backed_up: pages by component. evicted: pages by (tier, component).
    refused: how often, by (reason, component).
    """

    def __init__(self) -> None:
        self.loaded: Counter[str] = Counter()
        self.backed_up: Counter[str] = Counter()
        self.evicted: Counter[tuple[Tier, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()

    def on_event(self, event: Event, view: CoreView) -> None:
        """Counts nothing: only outcomes count."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Evicted):
                self.evicted[outcome.tier, outcome.component] += len(outcome.pages)
            elif isinstance(outcome, Load):
                _count(self.loaded, outcome)
            elif isinstance(outcome, Backup):
                _count(self.backed_up, outcome)
            elif isinstance(outcome, Refused):
                self.refused[outcome.reason, outcome.component] += 1


def _count(pages: Counter[str], action: Load | Backup) -> None:
    for copy in action.copies:
        pages[copy.component] += len(copy.target)


class Observers:
    """The observers that count for all replicas together, and the figures of each pool."""

    def __init__(self, settings: ReplayConfig, ceiling: Tokens) -> None:
        self.tally = Tally()
        self.lookups = Lookups(settings.core.components, -(-ceiling // settings.core.page_size))
        self.prefetches = Prefetches()
        self.all: list[Observer] = [self.tally]
        if settings.storage is not None:
            self.all.append(self.prefetches)
        if len(settings.core.components) > 1:  # for full alone, the account is enough
            self.all.append(self.lookups)

    def components(
        self, settings: ReplayConfig, replicas: int, views: Sequence[CoreView] | None
    ) -> dict[str, Component]:
        """The use of each component's pools in all replicas. views: of the cores at the end, None
        after an interrupt."""
        core, tally, found = settings.core, self.tally, {}
        known = views is not None and {*core.components} <= {*KNOWN}
        reports = [garbage_report(view) for view in views or ()] if known else []

        def at_rest(name: str, what: str) -> Pair | None:
            sums = (
                sum(report[f"{tier} {name}"][what] for report in reports)
                for tier in ("device", "host")
            )
            return Pair(*sums) if reports else None

        for place, name in enumerate(core.components):
            size, total = settings.rank_page_bytes[place], settings.page_bytes_total[name]
            on_host = settings.rank_host_page_bytes[place], settings.host_page_bytes_total[name]
            capacity = Pair(core.device_pages[place], core.host_pages[place]).times(replicas)
            found[name] = Component(
                page_bytes=size,
                page_bytes_total=total,
                capacity=capacity,
                pool_bytes_per_rank=Pair(capacity.device * size, capacity.host * on_host[0]),
                pool_bytes_total=Pair(capacity.device * total, capacity.host * on_host[1]),
                backed_up=tally.backed_up[name],
                loaded=tally.loaded[name],
                evicted=Pair(tally.evicted[Tier.DEVICE, name], tally.evicted[Tier.HOST, name]),
                cached_at_rest=at_rest(name, "cached"),
                garbage_at_rest=at_rest(name, "garbage"),
            )
            if len(core.components) > 1:
                found[name] = replace(
                    found[name],
                    most_in_use=self.lookups.peak_pages[place],
                    evicted_along=self.lookups.evicted_along[place],
                )
        return found

    def refused(self, backbone: str) -> dict[str, int]:
        return {
            reason if component == backbone else f"{reason} of {component}": count
            for (reason, component), count in self.tally.refused.items()
        }


class Team:
    """The observers of all replicas: some count for all together, others are one for each.

    ceiling: see `account`. follow: keep the history of every page, and of a single replica with a
    clock the time of every copy. until: stop when this request has been served. timeline: keep what
    `--timeline` draws.
    """

    def __init__(
        self,
        whole: Paged,
        settings: ReplayConfig,
        ceiling: Tokens,
        watch: Watch | None,
        follow: bool = False,
        until: int | None = None,
        timeline: bool = False,
    ) -> None:
        timed = settings.mode == "timed"
        fleet = settings.fleet or FleetOptions()
        self.counting = Observers(settings, ceiling)
        self.watches: list[Watch] = []
        self.histories: list[History] = []
        self.copies: Copies | None = None
        self.timelines: list[Timeline] = []
        sizes = settings.page_bytes_total, settings.host_page_bytes_total, settings.value_bytes
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
                history = History(
                    whole, settings.core.components, pages, settings.whole_prompts, stored
                )
                self.histories.append(history)
                seen.append(history)
            if one and follow and timed:
                self.copies = Copies(*sizes)
                seen.append(self.copies)
            if timeline:
                self.timelines.append(Timeline(*sizes))
                seen.append(self.timelines[-1])
            if until is not None and _serves_last(whole, fleet, place, until):
                seen.append(Until(until))
            self.all.append(seen)

    def set_clock(self, now_ns: Callable[[], int]) -> None:
        for history in self.histories:
            history.now_ns = now_ns
        for copies in (self.copies, *self.timelines):
            if copies is not None:
                copies.now_ns = now_ns

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

    def checks(
        self, settings: ReplayConfig, byte_checks: int = 0, access_checks: int = 0
    ) -> Checks:
        """Those of all replicas together."""
        watches = self.watches
        return Checks(
            level=settings.check,
            operations=sum(one.operations for one in watches),
            incremental=sum(one.incremental for one in watches),
            full=sum(one.full for one in watches),
            violations=sum(one.violations for one in watches),
            byte_checks=byte_checks if watches else 0,
            access_checks=access_checks if watches else 0,
            specified=sum(one.specified for one in watches),
            not_judged=next((one.unjudged for one in watches if one.unjudged), ""),
        )

    def components(
        self, settings: ReplayConfig, views: Sequence[CoreView] | None
    ) -> dict[str, Component]:
        """See `Observers`."""
        return self.counting.components(settings, len(self.all), views)

    def evicted(self, place: int) -> Pair:
        """Pages of full attention that one replica evicted."""
        evicted = self.tallies[place].evicted
        return Pair(evicted[Tier.DEVICE, BACKBONE], evicted[Tier.HOST, BACKBONE])

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


def _serves_last(whole: Paged, fleet: FleetOptions, place: int, request: int) -> bool:
    """Whether this replica would serve the last token of a request that it gets."""
    if not fleet.decode or place >= fleet.replicas:
        return True
    return whole.jobs[request].output_length <= 1
