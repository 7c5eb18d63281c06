"""Plays a trace on one replica or several, with a clock or without one, and collects what they did.

One replica is a `World`, several are a `Fleet`: with a clock, the rules are those of `sim`. Without
one, requests are served one after another by the real core (`HitsReplay`).
"""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Admitted, Load, Outcome, Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import About, CallerError
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    Finished,
    PagesWanted,
    PrefillDone,
)
from hicache.core.types import NO_PAGES, Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import (
    Driver,
    Executor,
    ImmediateExecutor,
    Observer,
    TieredExecutor,
    first_of,
)
from hicache.storage.base import Status
from invariants.checker import Checker
from sim.engine.pipeline import StageUse
from sim.engine.sequence import RequestResult, Times, TokenGaps, from_storage
from sim.errors import StuckError
from sim.fleet import Fleet, FleetResult, Trip, digest_of
from sim.options import FleetOptions, WorldOptions
from sim.recorder import Recorder
from sim.replica import KV_EVENTS, LinkUse, TimedResult, WorldStorage
from sim.routers import FrontEnd, Window, router_of
from sim.storage.contents import Contents
from sim.storage.executor import ImmediateStore, PageBytes, StoreExecutor
from sim.workload import Job
from sim.world import NO_RETENTION, Retention, RetentionOptions, RoundOptions, World, empty

from ..formats.base import Paged, Trace
from ..results import record
from ..results.record import PERCENTS, Component, Pair, Spread
from ..terminal.tables import progress
from .account import Account, Miss, Misses, Tally, ceiling_of, conversations, seen_before
from .config import ReplayConfig
from .options import BACKBONE
from .timeline import Timeline
from .traffic import NS_PER_S, Served, Slo

HELD_IN_HITS = 8  # without a clock: requests for each replica that a router takes for running
Shown: TypeAlias = AbstractContextManager[Callable[[int], None]]
MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"
_MOST_POLLS = 10_000
_TIMES = (
    *("arrival_ns", "first_token_ns", "finish_ns", "output_length"),
    *("queue_ns", "load_ns", "compute_ns"),
)


# -- what a replay did


def spread(times_ns: Times, counts: Times | None = None) -> Spread:
    """Mean and percentiles in seconds; zeros without observations. counts: how often each time
    occurs; None for once."""
    if not len(times_ns):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    points: NDArray[Any]
    if counts is None:
        mean = float(times_ns.mean())
        points = np.percentile(times_ns, PERCENTS, method="inverted_cdf")
    else:
        order = np.argsort(times_ns)
        up_to = np.cumsum(counts[order])
        total = int(up_to[-1])
        mean = float(np.dot(times_ns[order].astype(np.float64), counts[order])) / total
        ranks = [-(-percent * total // 100) for percent in PERCENTS]
        points = times_ns[order][np.searchsorted(up_to, ranks)]
    return Spread(mean / NS_PER_S, *(float(point) / NS_PER_S for point in points))


@dataclass(frozen=True, slots=True)
class Latency:
    """int64 nanoseconds per finished request; tpot_ns only for two output tokens or more.

    ttft_ns = queue_ns + load_ns + compute_ns: see RequestResult in sim/engine/sequence. requests:
    the finished requests, in the order of the trace. gaps: the times between tokens of each engine.
    """

    ttft_ns: Times
    queue_ns: Times
    load_ns: Times
    compute_ns: Times
    tpot_ns: Times
    makespan_ns: int
    generated_tokens: int
    requests: tuple[RequestResult, ...]
    gaps: tuple[TokenGaps, ...] = ()

    @property
    def figures(self) -> record.Times:
        """The distributions of the times."""
        gaps = [(NO_PAGES, NO_PAGES), *(gaps.weighted(self._numbers) for gaps in self.gaps)]
        times, counts = (np.concatenate(each) for each in zip(*gaps, strict=True))
        return record.Times(
            ttft=spread(self.ttft_ns),
            queue=spread(self.queue_ns),
            load=spread(self.load_ns),
            compute=spread(self.compute_ns),
            tpot=spread(self.tpot_ns),
            itl=spread(times, counts),
            makespan=self.makespan_ns / NS_PER_S,
        )

    @property
    def _numbers(self) -> NDArray[np.int64]:
        return np.array([request.request for request in self.requests], dtype=np.int64)

    @property
    def served(self) -> Served:
        """What limits are about (see traffic)."""
        numbers = self._numbers
        most = int(numbers.max(initial=-1)) + 1

        def slower(limit_ns: int) -> Times:
            none = np.zeros(most, dtype=np.int64)
            return sum((gaps.slower(limit_ns, most) for gaps in self.gaps), none)[numbers]

        rows = [
            (request.finish_ns - request.first_token_ns, max(1, request.output_length))
            for request in self.requests
        ]
        decode_ns, tokens = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return Served(self.ttft_ns, decode_ns, tokens, slower)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of the whole run."""
        return self.generated_tokens * NS_PER_S / self.makespan_ns if self.makespan_ns else 0.0


@dataclass(frozen=True, slots=True)
class FleetUse:
    """choices: the replica of each request, by number. trips: None without decode replicas."""

    figures: record.Fleet
    choices: Mapping[int, int]
    trips: Mapping[int, Trip] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What a replay did. refused: admissions, chunks and growths refused, by reason. turns: of
    conversations; turns_from: what tells them (see account).

    misses: why each hit is not longer; of several components, or where it was asked for. retracted:
    how often a request was. interrupted: stopped by Ctrl-C or a judge; everything else then covers
    the part that ran. fleet: what each replica did, if there are several; the other figures
    are then of all together. stages: use of pipeline stages. timelines: of each replica, where it
    was asked for.
    """

    account: Account
    transfers: Mapping[str, record.Transfer]
    refused: dict[str, int]
    checks: record.Checks
    digest: str
    components: Mapping[str, Component]
    misses: Mapping[int, Miss] = field(default_factory=dict)
    turns: Sequence[record.Turn] = ()
    turns_from: str = ""
    wall_s: float = 0.0
    latency: Latency | None = None
    retracted: int = 0
    interrupted: bool = False
    storage: record.Storage | None = None
    fleet: FleetUse | None = None
    stages: record.Stages | None = None
    timelines: Sequence[Timeline] = ()

    @property
    def backbone(self) -> Component:
        return next(iter(self.components.values()))

    @property
    def evicted(self) -> Pair:
        """Pages of the backbone that were evicted."""
        return self.backbone.evicted


# -- what ends a replay early, and the story of an error


class Stopped(Exception):
    """Ends a replay early; everything that ran counts."""


class Judge(Protocol):
    """Looks at each request that ends; whether the replay is to stop then."""

    def __call__(self, result: RequestResult) -> bool: ...


class Hopeless:
    """Stops a replay of which too many requests missed a limit. slo: the limits, `itl` does not
    count. most: requests that may miss them.

    ended: requests that have ended. missed: how many of them missed a limit. stopped: whether the
    replay was stopped.
    """

    def __init__(self, slo: Slo, most: int) -> None:
        self._slo, self._most = slo, most
        self.ended = self.missed = 0
        self.stopped = False

    def __call__(self, result: RequestResult) -> bool:
        slo, ttft_ns = self._slo, result.first_token_ns - result.arrival_ns
        decode_ns, gaps = result.finish_ns - result.first_token_ns, max(1, result.output_length) - 1
        self.ended += 1
        self.missed += (  # exact, as `kept` of traffic
            (slo.ttft_ns is not None and ttft_ns > slo.ttft_ns)
            or (slo.tpot_ns is not None and decode_ns > slo.tpot_ns * gaps)
            or (slo.e2e_ns is not None and ttft_ns + decode_ns > slo.e2e_ns)
        )
        self.stopped = self.missed > self._most
        return self.stopped


class StoryTeller(Protocol):
    """An observer that keeps operations."""

    def story_of(self, whom: Sequence[About]) -> list[str]:
        """The last operations that concern any of these objects, and the last event."""


@contextmanager
def story_on_error(*tellers: StoryTeller) -> Iterator[None]:
    """Adds the last operations of the core to an error that ends the block and has no story yet.
    tellers: of each replica; none if nothing observed the core."""
    try:
        yield
    except CallerError:
        raise
    except Exception as error:
        notes = getattr(error, "__notes__", ())
        if not any("story:" in text for text in (str(error), *notes)):
            story = ["story: none, since nothing is kept with --check off"]
            named = [
                story for n, story in enumerate(tellers) if f"replica: {n}" in notes
            ] or tellers[:1]
            for item in named:
                lines = item.story_of(getattr(error, "about", ()))
                story = ["story:", *(f"    {line}" for line in lines)]
            error.add_note("\n".join(story))
        raise


# -- the run


class _Play:
    """What is played, and who watches it: `observers` of each replica. tally: of all together;
    tallies: of each. rounds: None where no tier is emptied between them. contents: what the store
    has. At the end: views, digests, stores of each replica; choices: the replica of each request;
    result: None without a clock. ceiling: in pages. follow, command, timeline: see `run`."""

    def __init__(
        self,
        paged: Paged,
        config: ReplayConfig,
        account: Account,
        ceiling: NDArray[np.int32],
        follow: bool,
        command: str,
        timeline: bool,
    ) -> None:
        self.paged, self.config, self.account = paged, config, account
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
        pools, distance = config.pools, 1
        if pools.interval and not pools.branch_states:
            distance = pools.interval // config.core.page_size
        for place in members:
            seen: list[Observer] = [self.tally, *self.tallies[place : place + (len(members) > 1)]]
            seen += [*self.checkers[place : place + 1], *self.timelines[place : place + 1]]
            # for full alone, the account is enough
            if (len(components) > 1 or follow) and place < self.fleet.replicas:
                seen.append(Misses(components, ceiling, self.misses, distance))
            self.observers.append(seen)
        self.rounds: RoundOptions | None = None
        self.contents: Contents | None = None
        self.interrupted = False
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
) -> Run:
    """One replay, to its end or to Ctrl-C: the result then covers the part that ran.

    command: what the user typed, shown with a violation. follow: tell why each hit is not longer.
    timeline: with a clock, keep what `--timeline` draws. judge: with a clock, may stop it. shown:
    shows the progress. start: time.perf_counter() when the command began.
    """
    start = time.perf_counter() if start is None else start
    ceiling = ceiling_of(paged, whole_prompts=config.whole_prompts)
    account = Account(trace.jobs, paged.page_size, ceiling)
    turns, turns_from = conversations(paged)
    pages = -(-ceiling // paged.page_size)
    play = _Play(paged, config, account, pages, follow, command, timeline)
    if config.flushed:
        rounds_of = turns if turns_from == "after" else np.zeros_like(turns)
        play.rounds = RoundOptions(rounds_of.tolist(), config.flushed)
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
        run = _collected(play)
    return replace(
        run, turns=account.by_turn(turns), turns_from=turns_from, wall_s=time.perf_counter() - start
    )


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


def _timed(play: _Play, report: Callable[[int], None], judge: Judge | None) -> None:
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
    play.views = [member.core.view for member in members]
    play.digest, play.digests = result.digest, [part.digest for part in play.parts]


def world_of(play: _Play, ended: Callable[[int, int], None]) -> World | Fleet:
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
    if config.fleet is None:
        return World(
            *what,
            engine=config.engine,
            options=options,
            storage=storage,
            rounds=play.rounds,
            sender=play.paged.jobs.sender,
            retention=config.retention,
            observers=play.observers[0],
            progress=ended,
        )
    return Fleet(
        *(*what, config.fleet),
        page_bytes=config.value_bytes[config.core.components[0]],
        engine=config.engine,
        options=options,
        storage=storage,
        sender=play.paged.jobs.sender,
        observers=play.observers,
        progress=ended,
    )


# -- without a clock


def _hits(play: _Play, report: Callable[[int], None]) -> None:
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
        recorder = Recorder(lambda: 0, KV_EVENTS) if routed else Recorder(lambda: 0)
        recorders.append(recorder)
        observers: list[Observer] = [
            recorder,
            *([Window(front_end, place)] if routed else []),
            *seen,
        ]
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


# -- what was counted


def _collected(play: _Play) -> Run:
    config, tally, parts, checkers = play.config, play.tally, play.parts, play.checkers
    result, latency = play.result, None
    if result is not None:
        latency = _latency(result, play.account)
    checked = bool(checkers)
    beside = [item.differential for item in checkers if item.differential is not None]
    return Run(
        account=play.account,
        transfers={
            "d2h": _transfer(
                config, [part.d2h for part in parts], config.bytes_of(tally.backed_up)
            ),
            "h2d": _transfer(config, [part.h2d for part in parts], config.bytes_of(tally.loaded)),
        },
        refused={
            reason if component == BACKBONE else f"{reason} of {component}": count
            for (reason, component), count in tally.refused.items()
        },
        checks=record.Checks(
            level=config.check,
            operations=sum(checker.operations for checker in checkers),
            incremental=sum(checker.incremental for checker in checkers),
            full=sum(checker.full for checker in checkers),
            violations=sum(checker.violations for checker in checkers),
            byte_checks=checked * sum(part.byte_checks for part in parts),
            access_checks=checked * sum(part.access_checks for part in parts),
            specified=sum(item.compared for item in beside),
            specified_nodes=max((item.nodes for item in beside), default=0),
            specified_pages=max((item.pages for item in beside), default=0),
            not_judged=next((item.unspecified for item in beside if item.unspecified), ""),
        ),
        digest=play.digest,
        components=_components(play),
        misses=play.misses,
        latency=latency,
        retracted=0 if result is None else sum(request.retractions for request in result.requests),
        interrupted=play.interrupted,
        storage=_storage(play) if play.stores else None,
        fleet=None if config.fleet is None else _fleet(play),
        stages=_stages([part.stages for part in parts if part.stages is not None]),
        timelines=play.timelines,
    )


def _latency(result: TimedResult | FleetResult, account: Account) -> Latency:
    """Adds the hits of the requests to the account; returns the latencies of finished requests."""
    for request in result.requests:
        account.admit(
            request.request, request.device_tokens, request.host_tokens, request.storage_tokens
        )
    rows = [[getattr(request, name) for name in _TIMES] for request in result.requests]
    table = np.array(rows, dtype=np.int64).reshape(-1, len(_TIMES))
    arrival, first, finish, tokens, queue, load, compute = table.T
    several = tokens > 1
    return Latency(
        ttft_ns=first - arrival,
        queue_ns=queue,
        load_ns=load,
        compute_ns=compute,
        tpot_ns=(finish - first)[several] // (tokens[several] - 1),
        makespan_ns=result.makespan_ns,
        generated_tokens=int(tokens.sum()),
        requests=result.requests,
        gaps=result.gaps,
    )


def _transfer(config: ReplayConfig, links: Sequence[LinkUse], copied: int) -> record.Transfer:
    """links: of each replica, none without a clock. copied: bytes of one rank of each stage and
    group that attends."""
    ranks, moved = config.parallelism, sum(link.bytes for link in links) if links else copied
    each, total = moved // (ranks.attention_dp * ranks.pp), moved * config.page_ranks
    busy_s = sum(link.busy_ns for link in links) / NS_PER_S if links else None
    return record.Transfer(moved, each, total, busy_s)


def _stages(used: Sequence[StageUse]) -> record.Stages | None:
    """The use of the stages, of all replicas together; None without stages."""
    if not used:
        return None
    computing = [sum(times) for times in zip(*(item.computing_ns for item in used), strict=True)]
    full = sum(stage_use.under_way_ns for stage_use in used)
    idle = [1 - each / full if full else 0.0 for each in computing]
    return record.Stages([each / NS_PER_S for each in computing], full / NS_PER_S, idle)


def _components(play: _Play) -> dict[str, Component]:
    """The use of each component's pools in all replicas."""
    config, tally, core = play.config, play.tally, play.config.core
    result = {}
    for place, name in enumerate(core.components):
        size, total = config.rank_page_bytes[place], config.page_bytes[place] * config.page_ranks
        pages = Pair(core.device_pages[place], core.host_pages[place])
        capacity = pages.times(len(play.observers))
        result[name] = Component(
            page_bytes=size,
            page_bytes_total=total,
            capacity=capacity,
            pool_bytes_per_rank=capacity.times(size),
            pool_bytes_total=capacity.times(total),
            backed_up=tally.backed_up[name],
            loaded=tally.loaded[name],
            evicted=_evicted(tally, name),
        )
    return result


def _evicted(tally: Tally, component: str) -> Pair:
    return Pair(tally.evicted[Tier.DEVICE, component], tally.evicted[Tier.HOST, component])


def _storage(play: _Play) -> record.Storage:
    """What all replicas moved together to and from the one store that they share."""
    size, tally, stores = play.config.core.page_size, play.tally, play.stores
    ended = {
        reason: record.Ended(
            requests=ended.requests,
            asked_tokens=ended.asked_pages * size,
            found_tokens=ended.found_pages * size,
            fetched_tokens=ended.fetched_pages * size,
        )
        for reason, ended in tally.ended.items()
    }
    reads, writes = [part.reads for part in play.parts], [part.writes for part in play.parts]
    return record.Storage(
        prefetches=record.PrefetchFigures(tally.lookups, ended),
        stores=tally.stores,
        read=_moved(play.config, [store.moved.read for store in stores], reads),
        written=_moved(play.config, [store.moved.written for store in stores], writes),
        losses=sum((store.moved.losses for store in stores), stores[0].contents.losses),
        evicted_values=stores[0].contents.evicted,
    )


def _moved(
    config: ReplayConfig,
    stores: Sequence[Mapping[str, Counter[Status]]],
    links: Sequence[LinkUse | None],
) -> record.Moved:
    sizes, values, moved = config.value_bytes, Counter[str](), 0
    for store in stores:
        moved += sum(ends[Status.DONE] * sizes[name] for name, ends in store.items())
        for statuses in store.values():
            values.update({str(status): count for status, count in statuses.items()})
    busy = [link.busy_ns for link in links if link is not None]
    return record.Moved(moved, sum(busy) / NS_PER_S if busy else None, dict(values))


def _fleet(play: _Play) -> FleetUse:
    """What each replica did."""
    fleet, choices, rows = play.fleet, play.choices, list(play.account.rows())
    replicas = []
    for place in range(fleet.members):
        own = [row for row in rows if choices[row.request] == place]
        prefills = place < fleet.replicas
        role = (PREFILL if fleet.decode else MIXED) if prefills else DECODE
        prompts, hits = sum(row.input_tokens for row in own), sum(row.hit_tokens for row in own)
        ended = play.parts[place].requests if play.parts else ()
        ttft = [request.first_token_ns - request.arrival_ns for request in ended if prefills]
        # a prefill replica samples the first token of each answer
        sampled = sum(max(1, request.output_length) - (role == DECODE) for request in ended)
        replicas.append(
            record.Replica(
                replica=place,
                role=role,
                requests=len(own if prefills else ended),
                input_tokens=prompts,
                hit_tokens=hits,
                hit_rate=hits / prompts if prompts else None,
                computed_tokens=prompts - hits,
                output_tokens=sampled,
                ttft_s=spread(np.array(ttft, dtype=np.int64)) if ttft else None,
                evicted_pages=_evicted(play.tallies[place], BACKBONE),
                checked_operations=play.checkers[place].operations if play.checkers else 0,
                digest=play.digests[place],
            )
        )
    prefilling = [replica for replica in replicas if replica.role != DECODE]
    uneven = record.Imbalance(
        imbalance([replica.requests for replica in prefilling]),
        imbalance([replica.computed_tokens for replica in prefilling]),
    )
    if not (fleet.decode and isinstance(play.result, FleetResult)):
        return FleetUse(record.Fleet(replicas, uneven), choices)
    link, trips = play.result.link, play.result.trips
    moved = [trip for trip in trips.values() if trip.arrived_ns >= 0]
    kv_link = record.KvLink(
        bytes_total=link.bytes,
        busy_s=link.busy_ns / NS_PER_S,
        requests=len(moved),
        moved_pages=sum(trip.pages for trip in moved),
        cached_pages=sum(trip.cached for trip in moved),
    )
    parts = [trip_times(trip) for trip in moved]
    handoff_s = {
        name: spread(np.array([part[name] for part in parts], np.int64))
        for name in ("decode_wait", "link_wait", "link")
    }
    return FleetUse(record.Fleet(replicas, uneven, kv_link, handoff_s), choices, trips)


def trip_times(trip: Trip) -> dict[str, int]:
    """Nanoseconds of the parts of a way from prefill to decode."""
    return {
        "decode_wait": trip.admitted_ns - trip.left_ns,
        "link_wait": trip.began_ns - trip.admitted_ns,
        "link": trip.arrived_ns - trip.began_ns,
    }


def imbalance(amounts: Sequence[int]) -> float:
    """The largest over the mean; 1 if all are equal, or nothing was done."""
    total = sum(amounts)
    return max(amounts) * len(amounts) / total if total else 1.0
