"""Plays a trace on one replica or several, with a clock or without one, and collects what they did.

A single cache is a fleet of one.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias

from hicache.core.view import CoreView
from hicache.runtime.driver import Executor, Observer
from hicache.runtime.executors import ImmediateExecutor, TieredExecutor
from sim.engine.pipeline import StageUse
from sim.fleet.desk import Desk, Window
from sim.fleet.fleet import Fleet, FleetResult, digest_of
from sim.fleet.options import FleetOptions
from sim.fleet.routers.base import reads_events
from sim.recorder import Recorder
from sim.replica import KV_EVENTS, LinkUse, TimedResult
from sim.rounds import RoundOptions
from sim.storage.contents import Contents
from sim.storage.executor import ImmediateStore
from sim.storage.page_bytes import PageBytes
from sim.world import World

from ..formats.base import Paged
from ..results.record import Stages, Transfer
from . import timed as replay_timed
from .account import Account
from .config import ReplayConfig
from .fleet.outcome import with_fleet
from .following import TOO_LARGE, Miss
from .hits import HitsReplay
from .observing.ending import Served
from .observing.team import Team
from .run import NS_PER_S, Run
from .storage_use import listen, use_of, with_lost

HELD_IN_HITS = 8  # without a clock: requests for each replica that a router takes for running
Shown: TypeAlias = AbstractContextManager[Callable[[int], None]]


@dataclass(frozen=True, slots=True)
class Moving:
    """What moves bytes in a replay of one replica without a clock. executor: all that was started
    has ended at its next poll. observers: of the driver."""

    executor: Executor
    observers: Sequence[Observer]


@dataclass(frozen=True, slots=True)
class Play:
    """What a replay plays.

    whole: the trace with the requests that were left out. contents: what the store has. begun: is
    called with the simulated world before it runs. moving: None: nothing is moved.
    """

    whole: Paged
    paged: Paged
    settings: ReplayConfig
    account: Account
    team: Team
    contents: Contents | None = None
    rounds: RoundOptions | None = None
    begun: Callable[[World | Fleet], None] = lambda world: None
    moving: Moving | None = None

    @property
    def fleet(self) -> FleetOptions:
        return self.settings.fleet or FleetOptions()


def play(played: Play, shown: Shown) -> Run:
    """Plays it to the end, or to Ctrl-C: the result then covers the part that ran."""
    with played.team.stories():
        found = (_timed if played.settings.mode == "timed" else _hits)(played, shown)
    return with_lost(found)


def _timed(played: Play, shown: Shown) -> Run:
    settings, team = played.settings, played.team
    interrupted = False
    with shown as report:
        world = _world(played, report)
        members = world.members if isinstance(world, Fleet) else [world]
        team.set_clock(lambda: world.clock.now_ns)
        for member, history in zip(members, team.histories, strict=False):
            if member.store is not None:
                listen(history, member.store)
        played.begun(world)
        try:
            world.run()
        except (KeyboardInterrupt, Served):
            interrupted = True
    views = [member.core.view for member in members]
    if not interrupted:
        team.finish(views)
    result = world.result()
    parts = result.members if isinstance(result, FleetResult) else (result,)
    stores = [member.store for member in members if member.store is not None]
    run = replace(
        _run(played, views, interrupted, result.digest),
        transfers={
            "d2h": _moved(settings, [one.d2h for one in parts]),
            "h2d": _moved(settings, [one.h2d for one in parts]),
        },
        checks=team.checks(
            settings,
            sum(one.byte_checks for one in parts),
            sum(one.access_checks for one in parts),
        ),
        latency=replay_timed.record_result(result, played.account),
        preempted=sum(request.retractions for request in result.requests),
        storage=use_of(settings, team.counting.prefetches, stores, parts),
        copies=team.copies,
        timelines=team.timelines,
        stages=_stages([one.stages for one in parts if one.stages is not None]),
    )
    if isinstance(result, TimedResult):
        return run
    digests = [one.digest for one in parts]
    whole, paged, choices = played.whole, played.paged, result.choices
    return with_fleet(run, whole, paged, played.fleet, team, choices, digests, result)


def _moved(settings: ReplayConfig, links: Sequence[LinkUse]) -> Transfer:
    moved, busy_ns = sum(one.bytes for one in links), sum(one.busy_ns for one in links)
    return _transfer(settings, moved, busy_ns / NS_PER_S)


def _stages(used: Sequence[StageUse]) -> Stages | None:
    """The use of the stages, of all replicas together; None without stages."""
    if not used:
        return None
    computing = [sum(times) for times in zip(*(one.computing_ns for one in used), strict=True)]
    whole = sum(one.under_way_ns for one in used)
    idle = [1 - each / whole if whole else 0.0 for each in computing]
    return Stages([each / NS_PER_S for each in computing], whole / NS_PER_S, idle)


def _transfer(settings: ReplayConfig, moved: int, busy_s: float | None = None) -> Transfer:
    """moved: bytes of one rank of each stage and group that attends."""
    ranks = settings.parallelism
    each, total = moved // (ranks.attention_dp * ranks.pp), moved * settings.page_ranks
    return Transfer(moved, each, total, busy_s)


def _world(played: Play, report: Callable[[int], None]) -> World | Fleet:
    paged, settings, seen = played.paged, played.settings, played.team.all
    if settings.fleet is not None:
        return replay_timed.build_fleet(
            paged, settings, settings.fleet, seen, report, played.contents
        )
    return replay_timed.build(paged, settings, seen[0], report, played.contents, played.rounds)


def _hits(played: Play, shown: Shown) -> Run:
    settings, team = played.settings, played.team
    uncached = settings.uncached.requests
    if team.histories:
        team.histories[0].misses |= dict.fromkeys(uncached, Miss(TOO_LARGE, 0))
    desk = Desk(played.paged, played.fleet.replicas, played.fleet.router, lambda: 0)
    routed = settings.fleet is not None
    core = settings.core
    if routed:
        core = replace(core, kv_events=reads_events(played.fleet.router.name))
    recorders = [
        Recorder(lambda: 0, KV_EVENTS) if routed else Recorder(lambda: 0) for _ in team.all
    ]
    stores: list[ImmediateStore] = []
    replicas: list[HitsReplay] = []
    for place, recorder in enumerate(recorders):
        executor: Executor | None = None
        prefetches = None if settings.storage is None else team.counting.prefetches
        moved: Sequence[Observer] = ()
        if played.moving is not None:
            executor, moved = played.moving.executor, played.moving.observers
        elif played.contents is not None:
            store = ImmediateStore(played.contents, core.components, PageBytes(None))
            executor = TieredExecutor(ImmediateExecutor(), store)
            stores.append(store)
            if team.histories:
                listen(team.histories[place], store)
        window: list[Observer] = [Window(desk, place)] if routed else []
        held = (
            played.paged,
            core,
            played.account,
            (recorder, *window, *team.all[place], *moved),
            executor,
            prefetches,
            played.rounds,
            uncached,
            settings.wants,
        )
        replicas.append(HitsReplay(*held))
    interrupted = False
    with shown as report:
        gc.disable()  # reference counting frees everything; a collection scans the whole tree
        try:
            if routed:
                _route(played.paged, replicas, desk, report)
            else:
                replicas[0].run(report)
        except (KeyboardInterrupt, Served):
            interrupted = True
        finally:
            gc.enable()
    views = [one.core.view for one in replicas]
    if not interrupted:
        team.finish(views)
    digests = [one.digest() for one in recorders]
    run = replace(
        _run(played, views, interrupted, digest_of(digests)),
        storage=use_of(settings, team.counting.prefetches, stores),
    )
    if not routed:
        return run
    whole, paged = played.whole, played.paged
    return with_fleet(run, whole, paged, played.fleet, team, desk.choices, digests)


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


def _run(played: Play, views: Sequence[CoreView], interrupted: bool, digest: str) -> Run:
    """What is read alike with a clock and without one."""
    settings, team = played.settings, played.team
    tally = team.counting.tally
    return Run(
        account=played.account,
        transfers={
            way: _transfer(settings, settings.bytes_of(copied, sizes))
            for way, copied, sizes in (
                ("d2h", tally.backed_up, settings.host_page_bytes),
                ("h2d", tally.loaded, settings.page_bytes),
            )
        },
        lookups=team.counting.lookups,
        refused=team.counting.refused(settings.core.components[0]),
        checks=team.checks(settings),
        digest=digest,
        components=team.components(settings, None if interrupted else views),
        interrupted=interrupted,
        history=team.histories[0] if team.histories else None,
    )
