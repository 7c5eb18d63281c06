"""What watches a replay: observers that count for all replicas, those of each, what ends a replay
early, and the story of an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from msgspec.structs import replace

from hicache.core.actions import Backup, Evicted, Load, Outcome, Refused
from hicache.core.errors import About, CallerError
from hicache.core.events import Event, Finished
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.books.distances import garbage_report
from invariants.books.kinds import KNOWN
from invariants.watch import Watch
from sim.engine.sequence import RequestResult
from sim.fleet.fleet import Fleet
from sim.fleet.options import FleetOptions
from sim.storage.executor import StoreExecutor
from sim.world import World

from ..formats.base import Paged
from ..results.record import Checks, Component, Pair
from .account import Lookups, Prefetches, Tokens
from .config import ReplayConfig
from .defaults import BACKBONE
from .following import NOT_READY, OTHER_REPLICA, History
from .load import Slo
from .timeline import Copies, Timeline


class Tally:
    """Counts pages moved and evicted, and refusals, per component.

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
            elif isinstance(outcome, Load | Backup):
                moved = self.loaded if isinstance(outcome, Load) else self.backed_up
                for copy in outcome.copies:
                    moved[copy.component] += len(copy.target)
            elif isinstance(outcome, Refused):
                self.refused[outcome.reason, outcome.component] += 1


# -- what ends a replay early


class Served(Exception):
    """Ends a replay early; everything that ran counts."""


class Until:
    """An observer that ends the run at the first event after a request has finished."""

    def __init__(self, request: int) -> None:
        self._request = request
        self._served = False

    def on_event(self, event: Event, view: CoreView) -> None:
        if self._served:
            raise Served

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if type(event) is Finished and event.request == self._request:
            self._served = True


class Hopeless:
    """Ends a replay of which too many requests missed a limit. slo: the limits; `itl` is not looked
    at before the end. most: requests that may miss them.

    ended: requests that have ended. missed: how many of them missed a limit. stopped: whether the
    replay was ended.
    """

    def __init__(self, slo: Slo, most: int) -> None:
        self._slo, self._most = slo, most
        self._last: Callable[[], RequestResult] | None = None
        self.ended = self.missed = 0
        self.stopped = False

    def begin(self, world: World | Fleet) -> None:
        self._last = world.last

    @contextmanager
    def watching(
        self, shown: AbstractContextManager[Callable[[int], None]]
    ) -> Iterator[Callable[[int], None]]:
        """Shows the progress, and looks at each request that ends."""
        with shown as report:

            def ended(count: int) -> None:
                report(count)
                if self._last is None or count <= self.ended:
                    return
                self.ended = count
                self.missed += _misses(self._slo, self._last())
                if self.missed > self._most:
                    self.stopped = True
                    raise Served

            yield ended


def _misses(slo: Slo, one: RequestResult) -> bool:
    """Whether a request misses its time to first token, per token, or until its end. Exact, as
    `kept` of load."""
    decode_ns = one.finish_ns - one.first_token_ns
    return (
        (slo.ttft_ns is not None and one.first_token_ns - one.arrival_ns > slo.ttft_ns)
        or (slo.tpot_ns is not None and decode_ns > slo.tpot_ns * (max(1, one.output_length) - 1))
        or (slo.e2e_ns is not None and one.finish_ns - one.arrival_ns > slo.e2e_ns)
    )


# -- the story of an error

_NONE = "story: none, since nothing is kept with --check off; leave it out for a story"


class Told(Protocol):
    """An observer that keeps operations."""

    def story_of(self, whom: Sequence[About]) -> list[str]:
        """The last operations that concern any of these objects, and the last event."""


@contextmanager
def story_on_error(told: Told | None) -> Iterator[None]:
    """Adds the last operations of the core to an error that ends the block and has no story yet.

    told: None if nothing observed the core.
    """
    try:
        yield
    except CallerError:
        raise
    except Exception as error:
        if not any("story:" in text for text in (str(error), *getattr(error, "__notes__", ()))):
            error.add_note(_NONE if told is None else _story(told, error))
        raise


def _story(told: Told, error: Exception) -> str:
    lines = told.story_of(getattr(error, "about", ()))
    return "\n".join(["story:", *(f"    {line}" for line in lines)])


# -- the observers of all replicas


class Team:
    """ceiling: see `account`. follow: keep the history of every page, and of a single replica with
    a clock the time of every copy. until: stop when this request has been served. timeline: keep
    what `--timeline` draws.

    all: the observers of each replica. tally, lookups, prefetches count for all together.
    """

    def __init__(
        self,
        whole: Paged,
        config: ReplayConfig,
        ceiling: Tokens,
        watch: Watch | None,
        follow: bool = False,
        until: int | None = None,
        timeline: bool = False,
    ) -> None:
        self._config = config
        fleet = config.fleet or FleetOptions()
        one, stored = fleet.members == 1, config.storage is not None
        pages = -(-ceiling // config.core.page_size)
        self.tally = Tally()
        self.lookups = Lookups(config.core.components, pages)
        self.prefetches = Prefetches()
        self.watches: list[Watch] = []
        self.histories: list[History] = []
        self.copies: Copies | None = None
        self.timelines: list[Timeline] = []
        sizes = config.page_bytes_total, config.host_page_bytes_total, config.value_bytes
        counting: list[Observer] = [self.tally]
        counting += [self.prefetches] if stored else []
        # for full alone, the account is enough
        counting += [self.lookups] if len(config.core.components) > 1 else []
        self._tallies = [self.tally if one else Tally() for _ in range(fleet.members)]
        self.all: list[list[Observer]] = []
        for place in range(fleet.members):
            seen: list[Observer] = [*counting, *([] if one else [self._tallies[place]])]
            if watch is not None:
                own = watch
                if place:
                    own = Watch(watch.level, watch.replay_command, most_pages=watch.most_pages)
                self.watches.append(own)
                seen.append(own)
            if (follow or stored) and place < fleet.replicas:
                components = config.core.components
                history = History(whole, components, pages, config.whole_prompts, stored)
                self.histories.append(history)
                seen.append(history)
            if timeline:
                self.timelines.append(Timeline(*sizes))
                seen.append(self.timelines[-1])
            if one and follow and config.mode == "timed":  # a timeline counts the copies, too
                self.copies = self.timelines[-1] if timeline else Copies(*sizes)
                seen += [] if timeline else [self.copies]
            if until is not None and _serves_last(whole, fleet, place, until):
                seen.append(Until(until))
            self.all.append(seen)

    def set_clock(self, now_ns: Callable[[], int]) -> None:
        for history in self.histories:
            history.now_ns = now_ns
        for copies in (self.copies, *self.timelines):
            if copies is not None:
                copies.now_ns = now_ns

    def listen(self, stores: Sequence[StoreExecutor]) -> None:
        """Lets the stores say what became of pages that they did not deliver."""
        for history, store in zip(self.histories, stores, strict=False):
            history.short, history.fate = store.moved.short.get, store.contents.fate

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
                    error.add_note(_story(watch, error))
            raise

    def finish(self, views: Sequence[CoreView]) -> None:
        for watch, view in zip(self.watches, views, strict=False):
            watch.finish(view)

    def checks(self, byte_checks: int, access_checks: int) -> Checks:
        watches = self.watches
        return Checks(
            level=self._config.check,
            operations=sum(one.operations for one in watches),
            incremental=sum(one.incremental for one in watches),
            full=sum(one.full for one in watches),
            violations=sum(one.violations for one in watches),
            byte_checks=byte_checks if watches else 0,
            access_checks=access_checks if watches else 0,
            specified=sum(one.specified for one in watches),
            not_judged=next((one.unjudged for one in watches if one.unjudged), ""),
        )

    def components(self, views: Sequence[CoreView] | None) -> dict[str, Component]:
        """The use of each component's pools in all replicas. views: of the cores at the end, None
        after an interrupt."""
        config, tally = self._config, self.tally
        core, found = config.core, dict[str, Component]()
        known = {*core.components} <= {*KNOWN}
        reports = [garbage_report(view) for view in views or ()] if known else []

        def at_rest(name: str, what: str) -> Pair | None:
            sums = (
                sum(report[f"{tier} {name}"][what] for report in reports)
                for tier in ("device", "host")
            )
            return Pair(*sums) if reports else None

        for place, name in enumerate(core.components):
            size, total = config.rank_page_bytes[place], config.page_bytes_total[name]
            on_host = config.rank_host_page_bytes[place], config.host_page_bytes_total[name]
            capacity = Pair(core.device_pages[place], core.host_pages[place]).times(len(self.all))
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

    def refused(self) -> dict[str, int]:
        return {
            reason if component == BACKBONE else f"{reason} of {component}": count
            for (reason, component), count in self.tally.refused.items()
        }

    def evicted(self, place: int) -> Pair:
        """Pages of full attention that one replica evicted."""
        evicted = self._tallies[place].evicted
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
