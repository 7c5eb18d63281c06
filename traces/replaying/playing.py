"""Plays a trace on one replica or several, with a clock or without one, and collects what they did.

A single cache is a fleet of one. With a clock, the rules are those of `sim`; without one, requests
are served one after another (see hits).
"""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from msgspec import structs

from hicache.core.view import CoreView
from hicache.runtime.driver import Executor, Observer
from hicache.runtime.executors import ImmediateExecutor, TieredExecutor
from hicache.storage.base import Status
from invariants.watch import Watch
from sim.engine.pipeline import StageUse
from sim.fleet.desk import Desk, Window
from sim.fleet.fleet import Fleet, FleetResult, digest_of
from sim.fleet.options import FleetOptions
from sim.fleet.routers.base import reads_events
from sim.options import WorldOptions
from sim.recorder import Recorder
from sim.replica import KV_EVENTS, LinkUse, TimedResult, WorldStorage
from sim.rounds import RoundOptions
from sim.storage.contents import Contents
from sim.storage.executor import ImmediateStore, StoreExecutor
from sim.storage.page_bytes import PageBytes
from sim.world import World

from ..formats.base import Paged, Trace
from ..results.record import Ended, Lost, Moved, PrefetchFigures, Stages, Storage, Transfer
from ..terminal.tables import progress
from .account import Account, by_turn, ceiling_of, conversations
from .config import ReplayConfig
from .fleet import with_fleet
from .following import TOO_LARGE, Miss
from .hits import HitsReplay
from .observing import Hopeless, Served, Team
from .run import NS_PER_S, Run, record_result
from .sizes import Kept

HELD_IN_HITS = 8  # without a clock: requests for each replica that a router takes for running
Shown: TypeAlias = AbstractContextManager[Callable[[int], None]]
Progress: TypeAlias = Callable[[str, int], Shown]


@dataclass(frozen=True, slots=True)
class _Play:
    """What is played. rounds: None where no tier is emptied between them. contents: what the store
    has."""

    paged: Paged
    config: ReplayConfig
    account: Account
    team: Team
    rounds: RoundOptions | None
    contents: Contents | None

    @property
    def fleet(self) -> FleetOptions:
        return self.config.fleet or FleetOptions()


@dataclass(frozen=True, slots=True)
class _Played:
    """How it ended. views, digests, stores: of each replica. choices: the replica of each request.
    result: None without a clock."""

    views: Sequence[CoreView]
    digest: str
    digests: Sequence[str]
    stores: Sequence[StoreExecutor]
    interrupted: bool
    choices: Mapping[int, int]
    result: TimedResult | FleetResult | None = None

    @property
    def parts(self) -> Sequence[TimedResult]:
        if self.result is None:
            return ()
        return self.result.members if isinstance(self.result, FleetResult) else (self.result,)


def run(
    trace: Trace,
    paged: Paged,
    config: ReplayConfig,
    watch: Watch | None,
    start: float,
    follow: bool = False,
    until: int | None = None,
    shown: Progress | None = None,
    hopeless: Hopeless | None = None,
    timeline: bool = False,
) -> Run:
    """One replay, to its end or to Ctrl-C: the result then covers the part that ran. start:
    time.perf_counter() when the command began.

    follow: keep the history of every page, and with a clock the time of every copy. until: stop
    when this request has been served. shown: shows the progress, instead of standard error.
    hopeless: stop when too many requests have missed their limits. timeline: with a clock, keep
    what `--timeline` draws.
    """
    whole, skipped = paged, config.skipped
    paged = Kept(paged, skipped) if skipped.requests else paged
    ceiling = ceiling_of(paged, whole_prompts=config.whole_prompts)
    account = Account(trace.jobs, paged.page_size, ceiling)
    turns, turns_from = conversations(trace, whole)
    team = Team(whole, config, ceiling, watch, follow, until, timeline)
    rounds = None
    if config.flushed:
        rounds_of = turns if turns_from == "after" else np.zeros_like(turns)
        rounds = RoundOptions(rounds_of.tolist(), config.flushed)
    with _opened(config) as contents, team.stories():
        play = _Play(paged, config, account, team, rounds, contents)
        progressing = (shown or progress)("replay", len(paged.jobs))
        if hopeless is not None:
            progressing = hopeless.watching(progressing)
        played = (
            _timed(play, progressing, hopeless)
            if config.mode == "timed"
            else _hits(play, progressing)
        )
        if not played.interrupted:
            team.finish(played.views)
        found = _collected(play, played)
    if config.fleet is not None:
        found = with_fleet(
            found,
            *(whole, paged, config.fleet, team),
            *(played.choices, played.digests),
            played.result if isinstance(played.result, FleetResult) else None,
        )
    return replace(
        _with_lost(found),
        turns=by_turn(account, turns),
        turns_from=turns_from,
        wall_s=time.perf_counter() - start,
    )


def _collected(play: _Play, played: _Played) -> Run:
    config, team, parts = play.config, play.team, played.parts
    sizes = {"d2h": config.host_page_bytes, "h2d": config.page_bytes}
    copied = {"d2h": team.tally.backed_up, "h2d": team.tally.loaded}
    links = {"d2h": [one.d2h for one in parts], "h2d": [one.h2d for one in parts]}
    found = Run(
        account=play.account,
        transfers={
            way: _transfer(config, links[way], config.bytes_of(copied[way], sizes[way]))
            for way in ("d2h", "h2d")
        },
        lookups=team.lookups,
        refused=team.refused(),
        checks=team.checks(
            sum(one.byte_checks for one in parts), sum(one.access_checks for one in parts)
        ),
        digest=played.digest,
        components=team.components(None if played.interrupted else played.views),
        interrupted=played.interrupted,
        history=team.histories[0] if team.histories else None,
        storage=_storage_use(config, team, played.stores, parts),
    )
    if played.result is None:
        return found
    return replace(
        found,
        latency=record_result(played.result, play.account),
        preempted=sum(request.retractions for request in played.result.requests),
        copies=team.copies,
        timelines=team.timelines,
        stages=_stages([one.stages for one in parts if one.stages is not None]),
    )


def _transfer(config: ReplayConfig, links: Sequence[LinkUse], copied: int) -> Transfer:
    """links: of each replica, none without a clock. copied: bytes of one rank of each stage and
    group that attends."""
    ranks, moved = config.parallelism, sum(one.bytes for one in links) if links else copied
    each, total = moved // (ranks.attention_dp * ranks.pp), moved * config.page_ranks
    busy_s = sum(one.busy_ns for one in links) / NS_PER_S if links else None
    return Transfer(moved, each, total, busy_s)


def _stages(used: Sequence[StageUse]) -> Stages | None:
    """The use of the stages, of all replicas together; None without stages."""
    if not used:
        return None
    computing = [sum(times) for times in zip(*(one.computing_ns for one in used), strict=True)]
    whole = sum(one.under_way_ns for one in used)
    idle = [1 - each / whole if whole else 0.0 for each in computing]
    return Stages([each / NS_PER_S for each in computing], whole / NS_PER_S, idle)


# -- with a clock


def _timed(play: _Play, shown: Shown, hopeless: Hopeless | None) -> _Played:
    interrupted = False
    with shown as report:
        world = world_of(
            *(play.paged, play.config, play.team.all, report, play.contents, play.rounds)
        )
        members = world.members if isinstance(world, Fleet) else [world]
        stores = [member.store for member in members if member.store is not None]
        play.team.set_clock(lambda: world.clock.now_ns)
        play.team.listen(stores)
        if hopeless is not None:
            hopeless.begin(world)
        try:
            world.run()
        except (KeyboardInterrupt, Served):
            interrupted = True
    result = world.result()
    parts = result.members if isinstance(result, FleetResult) else (result,)
    choices = result.choices if isinstance(result, FleetResult) else {}
    views = [member.core.view for member in members]
    digests = [one.digest for one in parts]
    return _Played(views, result.digest, digests, stores, interrupted, choices, result)


def world_of(
    trace: Paged,
    config: ReplayConfig,
    observers: Sequence[Sequence[Observer]],
    report: Callable[[int], None],
    contents: Contents | None = None,
    rounds: RoundOptions | None = None,
) -> World | Fleet:
    """The simulated world of a configuration. observers: of each replica."""
    storage = None
    if config.storage is not None and contents is not None:
        link, limit = config.storage.options, config.storage.limit
        storage = WorldStorage(contents, link, config.value_bytes, limit)
    options = WorldOptions(
        checks=config.check,
        seed=config.seed,
        parallelism=config.parallelism,
        times=config.times,
        speed=config.speed,
        concurrency=config.load.concurrency,
    )
    if config.fleet is None:
        return World(
            *(trace, config.core, config.model, config.hardware),
            engine=config.engine,
            options=options,
            storage=storage,
            rounds=rounds,
            sender=trace.jobs.sender,
            wants=config.wants,
            observers=observers[0],
            progress=lambda ended, _: report(ended),
        )
    return Fleet(
        *(trace, config.core, config.model, config.hardware, config.fleet),
        page_bytes=config.value_bytes[config.core.components[0]],
        engine=config.engine,
        options=options,
        storage=storage,
        sender=trace.jobs.sender,
        observers=observers,
        progress=lambda ended, _: report(ended),
    )


# -- without a clock


def _hits(play: _Play, shown: Shown) -> _Played:
    config, team, core = play.config, play.team, play.config.core
    uncached = config.uncached.requests
    if team.histories:
        team.histories[0].misses |= dict.fromkeys(uncached, Miss(TOO_LARGE, 0))
    desk = Desk(play.paged, play.fleet.replicas, play.fleet.router, lambda: 0)
    routed = config.fleet is not None
    if routed:
        core = replace(core, kv_events=reads_events(play.fleet.router.name))
    prefetches = None if config.storage is None else team.prefetches
    recorders, stores, replicas = [], [], []
    for place, seen in enumerate(team.all):
        executor: Executor = ImmediateExecutor()
        if play.contents is not None:
            stores.append(ImmediateStore(play.contents, core.components, PageBytes(None)))
            executor = TieredExecutor(executor, stores[-1])
        recorder = Recorder(lambda: 0, KV_EVENTS) if routed else Recorder(lambda: 0)
        recorders.append(recorder)
        observers: list[Observer] = [recorder, *([Window(desk, place)] if routed else []), *seen]
        replicas.append(
            HitsReplay(
                *(play.paged, core, play.account, observers, executor),
                prefetches=prefetches,
                rounds=play.rounds,
                uncached=uncached,
                wants=config.wants,
            )
        )
    team.listen(stores)
    interrupted = False
    with shown as report:
        gc.disable()  # reference counting frees everything; a collection scans the whole tree
        try:
            if routed:
                _route(play.paged, replicas, desk, report)
            else:
                replicas[0].run(report)
        except (KeyboardInterrupt, Served):
            interrupted = True
        finally:
            gc.enable()
    digests = [one.digest() for one in recorders]
    views = [one.core.view for one in replicas]
    return _Played(views, digest_of(digests), digests, stores, interrupted, desk.choices)


def _route(
    paged: Paged, replicas: Sequence[HitsReplay], desk: Desk, report: Callable[[int], None]
) -> None:
    """One request at a time. For the loads that a router counts, the last few are in flight."""
    in_flight: deque[int] = deque()
    for done, job in enumerate(paged.jobs):
        if len(in_flight) == HELD_IN_HITS * len(replicas):
            desk.ended(in_flight.popleft())
        replicas[desk.choose(job)].serve(job)
        in_flight.append(job.index)
        if not done & 63:
            report(done)
    report(len(paged.jobs))


# -- storage


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


def _storage_use(
    config: ReplayConfig,
    team: Team,
    stores: Sequence[StoreExecutor],
    parts: Sequence[TimedResult],
) -> Storage | None:
    """What all replicas moved together to and from the one store that they share; None without
    storage. What was lost to is added by `_with_lost`."""
    if not stores:
        return None
    size, prefetches = config.core.page_size, team.prefetches
    return Storage(
        prefetches=PrefetchFigures(
            prefetches.begun,
            {
                reason: Ended(
                    requests=one.requests,
                    asked_tokens=one.asked_pages * size,
                    found_tokens=one.found_pages * size,
                    fetched_tokens=one.fetched_pages * size,
                )
                for reason, one in prefetches.ended.items()
            },
        ),
        stores=prefetches.stores,
        read=_moved(config, [one.moved.read for one in stores], [one.reads for one in parts]),
        written=_moved(
            config, [one.moved.written for one in stores], [one.writes for one in parts]
        ),
        losses=sum((one.moved.losses for one in stores), stores[0].contents.losses),
        evicted_values=stores[0].contents.evicted,
        lost_tokens={},
    )


def _moved(
    config: ReplayConfig,
    stores: Sequence[Mapping[str, Counter[Status]]],
    links: Sequence[LinkUse | None],
) -> Moved:
    sizes, values, moved = config.value_bytes, Counter[str](), 0
    for found in stores:
        moved += sum(ends[Status.DONE] * sizes[name] for name, ends in found.items())
        for statuses in found.values():
            values.update({str(status): count for status, count in statuses.items()})
    busy = [one.busy_ns for one in links if one is not None]
    return Moved(moved, sum(busy) / NS_PER_S if busy else None, dict(values))


def _with_lost(run: Run) -> Run:
    """With the tokens that had been seen before and were not hit, by reason; with storage."""
    history = run.history
    if run.storage is None or history is None:
        return run
    tokens, requests = Counter[str](), Counter[str]()
    for row in run.account.rows():
        if row.lost:
            reason = history.lost_to(row.request)
            tokens[reason] += row.lost
            requests[reason] += 1
    lost = {reason: Lost(requests[reason], lost) for reason, lost in tokens.most_common()}
    return replace(run, storage=structs.replace(run.storage, lost_tokens=lost))
