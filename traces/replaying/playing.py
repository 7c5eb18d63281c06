"""Plays a trace on one replica or several, with a clock or without one, and collects what they did.

One replica is a `World`, several are a `Fleet`: with a clock, the rules are those of `sim`. Without
one, requests are served one after another by the real core (`HitsReplay`).
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from hicache.core.actions import Admitted, Load, Outcome, Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    Finished,
    PagesWanted,
    PrefillDone,
)
from hicache.core.view import CoreView
from hicache.runtime.driver import (
    Driver,
    Executor,
    ImmediateExecutor,
    Observer,
    TieredExecutor,
    first_of,
)
from invariants.checker import Checker
from sim.engine.sequence import RequestResult, from_storage
from sim.errors import StuckError
from sim.fleet import Fleet, FleetResult, digest_of
from sim.options import FleetOptions, WorldOptions
from sim.recorder import Recorder
from sim.replica import KV_EVENTS, TimedResult, WorldStorage
from sim.routers import FrontEnd, Window, router_of
from sim.storage.contents import Contents
from sim.storage.executor import ImmediateStore, PageBytes, StoreExecutor
from sim.workload import Job
from sim.world import NO_RETENTION, Retention, RetentionOptions, RoundOptions, World, empty

from ..formats.base import Paged, Trace
from ..terminal.tables import progress
from .account import Account, Latency, Miss, Misses, Tally, ceiling_of, conversations, seen_before
from .config import ReplayConfig
from .timeline import Timeline

HELD_IN_HITS = 8  # without a clock: requests for each replica that a router takes for running
Judge: TypeAlias = Callable[[RequestResult], bool]
Shown: TypeAlias = AbstractContextManager[Callable[[int], None]]
_MOST_POLLS = 10_000


# -- what ends a replay early, and the story of an error


class Stopped(Exception):
    """Ends a replay early; everything that ran counts."""


@contextmanager
def story_on_error(*checkers: Checker) -> Iterator[None]:
    """Adds the last operations of the core to an error that ends the block and has no story yet.
    checkers: of each replica; none if nothing observed the core."""
    try:
        yield
    except CallerError:
        raise
    except Exception as error:
        notes = getattr(error, "__notes__", ())
        if not any("story:" in text for text in (str(error), *notes)):
            story = ["story: none, since nothing is kept with --check off"]
            named = [
                story for n, story in enumerate(checkers) if f"replica: {n}" in notes
            ] or checkers[:1]
            for item in named:
                lines = item.story_of(getattr(error, "about", ()))
                story = ["story:", *(f"    {line}" for line in lines)]
            error.add_note("\n".join(story))
        raise


# -- the run


class Play:
    """A replay: what is played, who watches it, and at its end what it did.

    observers: of each replica. tally: of all together; tallies: of each. misses: why each hit is
    not longer; of several components, or where it was asked for. turns: of conversations;
    turns_from: what tells them (see account). rounds: None where no tier is emptied between them.
    contents: what the store has. timelines: of each replica, where they were asked for.

    interrupted: stopped by Ctrl-C or a judge; everything else then covers the part that ran. views,
    digests, stores: of each replica. choices: the replica of each request. result: None without a
    clock.
    """

    def __init__(
        self,
        trace: Trace,
        paged: Paged,
        config: ReplayConfig,
        follow: bool,
        command: str,
        timeline: bool,
    ) -> None:
        self.trace, self.paged, self.config = trace, paged, config
        ceiling = ceiling_of(paged, whole_prompts=config.mode == "hits")
        self.account = Account(trace.jobs, paged.page_size, ceiling)
        self.turns, self.turns_from = conversations(paged)
        self.fleet = config.fleet or FleetOptions()
        members, components = range(self.fleet.members), config.core.components
        self.tally, self.misses = Tally(), dict[int, Miss]()
        self.tallies = [self.tally] if len(members) == 1 else [Tally() for _ in members]
        self.checkers = [
            Checker(config.check, replay_command=command, seed=config.load.seed)
            for _ in members
            if config.check != "off"
        ]
        self.timelines = [Timeline() for _ in members if timeline]
        self.observers: list[list[Observer]] = []
        pools, distance, pages = config.pools, 1, -(-ceiling // paged.page_size)
        if pools.interval and not pools.branch_states:
            distance = pools.interval // config.core.page_size
        for place in members:
            seen: list[Observer] = [self.tally, *self.tallies[place : place + (len(members) > 1)]]
            seen += [*self.checkers[place : place + 1], *self.timelines[place : place + 1]]
            # for full alone, the account is enough
            if (len(components) > 1 or follow) and place < self.fleet.replicas:
                seen.append(Misses(components, pages, self.misses, distance))
            self.observers.append(seen)
        self.rounds: RoundOptions | None = None
        if config.flushed:
            rounds = self.turns if self.turns_from == "after" else np.zeros_like(self.turns)
            self.rounds = RoundOptions(rounds.tolist(), config.flushed)
        self.contents: Contents | None = None
        self.interrupted, self.wall_s = False, 0.0
        self.views: Sequence[CoreView] = ()
        self.digest, self.digests = "", list[str]()
        self.stores: Sequence[StoreExecutor] = ()
        self.choices: Mapping[int, int] = {}
        self.result: TimedResult | FleetResult | None = None

    @property
    def parts(self) -> Sequence[TimedResult]:
        if self.result is None:
            return ()
        return self.result.members if isinstance(self.result, FleetResult) else (self.result,)

    @cached_property
    def latency(self) -> Latency | None:
        return None if self.result is None else Latency(self.result)


def run(
    trace: Trace,
    paged: Paged,
    config: ReplayConfig,
    command: str = "",
    *,
    follow: bool = False,
    timeline: bool = False,
    judge: Judge | None = None,
    shown: Callable[[str, int], Shown] | None = None,
    start: float | None = None,
) -> Play:
    """One replay, to its end or to Ctrl-C.

    command: what the user typed, shown with a violation. follow: tell why each hit is not longer.
    timeline: with a clock, keep what `--timeline` draws. judge: with a clock, looks at each request
    that ends; whether the replay is to stop then. shown: shows the progress. start:
    time.perf_counter() when the command began.
    """
    start = time.perf_counter() if start is None else start
    play = Play(trace, paged, config, follow, command, timeline)
    with _opened(config) as contents, story_on_error(*play.checkers):
        play.contents = contents
        with (shown or progress)("replay", len(paged.jobs)) as report:
            if config.mode == "timed":
                _timed(play, report, judge)
            else:
                _hits(play, report)
        for checker, view in zip(play.checkers, play.views, strict=False):
            if not play.interrupted:
                checker.finish(view)
        if follow:
            results = () if play.result is None else play.result.requests
            seen_before(paged, play.misses, {item.request: item for item in results}, play.choices)
    play.wall_s = time.perf_counter() - start
    return play


@contextmanager
def _opened(config: ReplayConfig) -> Iterator[Contents | None]:
    """What the store has, open for the time of a `with`; None without storage."""
    if config.storage is None:
        yield None
        return
    size = config.core.page_size
    contents = config.storage.open(config.model, size, config.value_bytes, config.page_ranks)
    with closing(contents):
        yield contents


# -- with a clock


def _timed(play: Play, report: Callable[[int], None], judge: Judge | None) -> None:
    def ended(count: int, _: int) -> None:
        report(count)
        if judge is not None and judge(world.last()):
            raise Stopped

    world = world_of(play, ended)
    members = world.members if isinstance(world, Fleet) else [world]
    for timeline in play.timelines:
        timeline.now_ns = lambda: world.clock.now_ns
    play.stores = [member.store for member in members if member.store is not None]
    try:
        world.run()
    except (KeyboardInterrupt, Stopped):
        play.interrupted = True
    result = play.result = world.result()
    play.choices = result.choices if isinstance(result, FleetResult) else {}
    for request in result.requests:
        hits = request.device_tokens, request.host_tokens, request.storage_tokens
        play.account.admit(request.request, *hits)
    play.views = [member.core.view for member in members]
    play.digest, play.digests = result.digest, [part.digest for part in play.parts]


def world_of(play: Play, ended: Callable[[int, int], None]) -> World | Fleet:
    """The simulated world."""
    config, storage = play.config, None
    if config.storage is not None and play.contents is not None:
        link, limit = config.storage.options, config.storage.limit
        storage = WorldStorage(play.contents, link, config.value_bytes, limit)
    options = WorldOptions(
        checks=config.check,
        seed=config.load.seed,
        parallelism=config.parallelism,
        times=config.times,
        speed=config.speed,
        concurrency=config.load.concurrency,
    )
    what = play.paged, config.core, config.model, config.hardware
    both: dict[str, Any] = {
        "engine": config.engine,
        "options": options,
        "storage": storage,
        "sender": play.paged.jobs.sender,
        "progress": ended,
    }
    if config.fleet is None:
        rest: dict[str, Any] = {"rounds": play.rounds, "retention": config.retention}
        return World(*what, observers=play.observers[0], **rest, **both)
    page_bytes = config.value_bytes[config.core.components[0]]
    return Fleet(*what, config.fleet, page_bytes=page_bytes, observers=play.observers, **both)


# -- without a clock


def _hits(play: Play, report: Callable[[int], None]) -> None:
    config, core = play.config, play.config.core
    front_end = FrontEnd(play.paged, play.fleet.replicas, play.fleet.router, lambda: 0)
    routed = config.fleet is not None
    if routed:
        core = replace(core, kv_events=router_of(play.fleet.router.name).reads_events)
    recorders, stores, replicas = [], [], []
    for place, seen in enumerate(play.observers):
        executor: Executor = ImmediateExecutor()
        if play.contents is not None:
            stores.append(ImmediateStore(play.contents, core.components, PageBytes(None)))
            executor = TieredExecutor(executor, stores[-1])
        recorders.append(Recorder(lambda: 0, KV_EVENTS) if routed else Recorder(lambda: 0))
        observers: list[Observer] = [recorders[-1], *seen]
        if routed:
            observers.insert(1, Window(front_end, place))
        prefetches = None if config.storage is None else play.tally
        what = play.paged, core, play.account, observers, executor, prefetches
        replicas.append(HitsReplay(*what, play.rounds, config.retention))
    play.stores = stores
    gc.disable()  # reference counting frees everything; a collection scans the whole tree
    try:
        if routed:
            _route(play.paged, replicas, front_end, report)
        else:
            replicas[0].run(report)
    except KeyboardInterrupt:
        play.interrupted = True
    finally:
        gc.enable()
    play.digests = [recorder.digest() for recorder in recorders]
    play.digest, play.choices = digest_of(play.digests), front_end.choices
    play.views = [replica.core.view for replica in replicas]


def _route(
    paged: Paged, replicas: Sequence[HitsReplay], front_end: FrontEnd, report: Callable[[int], None]
) -> None:
    """One request at a time. For the loads that a router counts, the last few are in flight."""
    in_flight: deque[int] = deque()
    for done, job in enumerate(paged.jobs):
        if len(in_flight) == HELD_IN_HITS * len(replicas):
            front_end.loads.end(in_flight.popleft())
        replicas[front_end.choose(job)].serve(job)
        in_flight.append(job.index)
        if not done & 63:
            report(done)
    report(len(paged.jobs))


class HitsReplay:
    """Serves one request at a time with the real core, without a clock: each request arrives, is
    admitted, computed and finished before the next one, and transfers end at once, so hits depend
    on the order of the file alone. `run` may be interrupted between requests.

    Every prompt token may hit, the last one too. The output is committed if the trace identifies
    it, and left out otherwise, because nothing can hit it. It grows page by page where there are
    windows, so that pages behind a window are freed as in an engine.

    executor: whose actions have all ended at the next poll. prefetches: an observer of its storage,
    if it has one.
    """

    def __init__(
        self,
        paged: Paged,
        config: Config,
        account: Account,
        observers: Sequence[Observer],
        executor: Executor | None = None,
        prefetches: Tally | None = None,
        rounds: RoundOptions | None = None,
        retention: RetentionOptions = NO_RETENTION,
    ) -> None:
        self.core = Core(config)
        self._executor = executor or ImmediateExecutor()
        self._driver = Driver(self.core, self._executor, observers)
        self._prefetches = prefetches
        self._rounds = rounds
        self._turn = 0
        self._paged = paged
        self._account = account
        self._retention = Retention(retention, self._driver.feed)
        self._stepwise = len(config.components) > 1

    def run(self, progress: Callable[[int], None]) -> None:
        """Serves all requests in file order. progress: called with the number done so far."""
        self._retention.pin(self._paged)
        for job in self._paged.jobs:
            self._retention.until(job.arrival_ns)
            if self._rounds is not None and self._rounds.turns[job.index] > self._turn:
                self._turn = self._rounds.turns[job.index]
                empty(self._rounds.tiers, self.core.view, self._driver.feed)
                self._settle()
            self.serve(job)
            if not job.index & 63:
                progress(job.index)
        progress(len(self._paged.jobs))

    def serve(self, job: Job) -> None:
        """Serves one request from its arrival to its end."""
        request, length, paged = job.index, job.input_length, self._paged
        feed = self._driver.feed
        key = paged.prompt_key(job)
        feed(Arrived(request, key, length, key.pages, job.priority))
        if self._prefetches is not None:
            self._settle()  # its prefetch ends before it is admitted
        outcomes = self._granted(job, AdmitWanted(request, length))
        self._admitted(job, outcomes)
        while True:
            prefill = outcomes[-1]
            if not isinstance(prefill, Prefill):
                raise StuckError(f"request {request}: expected a prefill, found {prefill}")
            feed(PrefillDone(prefill.transfer))
            if prefill.completes_prompt:
                break
            # a component that takes its pages chunk by chunk may have limited the pass
            outcomes = self._granted(job, ContinueWanted(request, length - prefill.end_token))
        if paged.knows_output:
            length += job.output_length - 1  # the last generated token has no KV
            self._generate(job, length)
            key = paged.key(job, length)
        feed(Finished(request, key, length))
        if self.core.view.transfers:
            self._settle()

    def _generate(self, job: Job, final: int) -> None:
        """Grows the request to `final` tokens: page by page with windows, else in one step."""
        length = job.input_length
        step = self._paged.page_size if self._stepwise else max(1, final - length)
        while length < final:
            wanted = min((length // step + 1) * step if self._stepwise else final, final)
            self._granted(job, PagesWanted(job.index, wanted, length))
            length = wanted

    def _admitted(self, job: Job, outcomes: list[Outcome]) -> None:
        """Records the hit in the account, and waits for a load."""
        admitted = first_of(Admitted, outcomes)
        if admitted is None:
            raise StuckError(f"request {job.index}: expected to be admitted, found {outcomes[-2:]}")
        if any(isinstance(item, Load) for item in outcomes):
            self._executor.start()
            self._driver.poll()
        size, length = self._paged.page_size, job.input_length
        device = min(admitted.device_pages * size, length)
        host = min((admitted.device_pages + admitted.host_pages) * size, length) - device
        storage = 0
        if self._prefetches is not None:
            pages = from_storage(admitted, *self._prefetches.fetched.get(job.index, (0, 0)))
            before = (admitted.device_pages + admitted.host_pages - pages) * size
            storage = device + host - min(before, length)
        self._account.admit(job.index, device, host - storage, storage)

    def _granted(self, job: Job, event: Event) -> list[Outcome]:
        """Feeds the event until it is not refused. Only transfers can delay it."""
        for _ in range(_MOST_POLLS):
            outcomes = self._driver.feed(event)
            refused = first_of(Refused, outcomes)
            if refused is None:
                return outcomes
            alone = not self.core.view.transfers
            if refused.reason == "too_large" or (alone and refused.reason == "no_pages"):
                raise CallerError(
                    f"{refused.component} pool of the device: expected room for {refused.needed} "
                    f"pages of request {job.index} ({job.input_length} prompt tokens), found "
                    f"{refused.available}; enlarge that pool"
                )
            if alone:
                break
            self._executor.start()
            self._driver.poll()
        raise StuckError(f"request {job.index}: refused alone in the cache, {refused}")

    def _settle(self) -> None:
        """Answers transfers until none is left. A reply may start another transfer."""
        for _ in range(_MOST_POLLS):
            self._executor.start()
            self._driver.poll()
            if not self.core.view.transfers:
                return
        raise StuckError(f"transfers begin transfers: {len(self.core.view.transfers)} left")
