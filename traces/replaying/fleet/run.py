"""Runs one replay with several replicas, in either mode, and collects what they did together.

Does not choose a replica or serve a request (see sim/fleet and hits), or print anything.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hicache.core.types import NO_PAGES, Pages
from hicache.runtime.driver import Observer
from invariants.watch import Watch
from sim.fleet.desk import Desk, Window
from sim.fleet.fleet import FleetResult, digest_of
from sim.fleet.options import FleetOptions
from sim.fleet.routers.base import reads_events
from sim.recorder import Recorder
from sim.replica import KV_EVENTS
from sim.storage.contents import Contents
from sim.storage.immediate import ImmediateStore
from sim.storage.page_bytes import PageBytes
from sim.workload import Job

from ...formats.base import Paged
from .. import timed as replay_timed
from ..account import Account, Tokens, ceiling_of
from ..fitting import Kept, Skipped
from ..following.history import TOO_LARGE, Miss
from ..hits import HitsReplay, HitsStorage
from ..observing.until import Served
from ..run import Run, Transfer
from ..settings import Settings
from ..storage_use import asked_of, use_of_all
from .team import Team
from .use import DECODE, MIXED, PREFILL, FleetUse, LinkTotals, ReplicaUse

HELD_IN_HITS = 8  # without a clock: requests for each replica that a router takes for running
Shown: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def run_fleet(
    whole: Paged,
    paged: Paged,
    settings: Settings,
    account: Account,
    watch: Watch | None,
    follow: bool,
    until: int | None,
    shown: Shown,
    contents: Contents | None,
) -> Run:
    """One replay with several replicas. whole: the trace with the requests that were left out."""
    assert settings.fleet is not None
    team = Team(whole, paged, settings, settings.fleet, watch, follow, until)
    with team.stories():
        if settings.mode == "timed":
            return _timed(whole, paged, settings, settings.fleet, account, team, shown, contents)
        return _hits(whole, paged, settings, settings.fleet, account, team, shown, contents)


def _timed(
    whole: Paged,
    paged: Paged,
    settings: Settings,
    options: FleetOptions,
    account: Account,
    team: Team,
    shown: Shown,
    contents: Contents | None,
) -> Run:
    interrupted = False
    with shown("replay", len(paged.jobs)) as report:
        fleet = replay_timed.build_fleet(paged, settings, options, team.all, report, contents)
        for member, history in zip(fleet.members, team.histories, strict=False):
            history.now_ns = lambda: fleet.clock.now_ns
            if member.store is not None:
                history.asked = asked_of(member.store)
        try:
            fleet.run()
        except (KeyboardInterrupt, Served):
            interrupted = True
    views = [member.core.view for member in fleet.members]
    if not interrupted:
        team.finish(views)
    timed = fleet.result()
    latency = replay_timed.record_result(timed, account)
    ceilings = _ceilings(paged, timed.choices, options, whole_prompts=False)
    parts = timed.members
    observers = team.counting
    stores = [member.store for member in fleet.members if member.store is not None]
    return Run(
        account=account,
        transfers={
            "d2h": Transfer(
                sum(one.d2h.bytes for one in parts), sum(one.d2h.busy_ns for one in parts)
            ),
            "h2d": Transfer(
                sum(one.h2d.bytes for one in parts), sum(one.h2d.busy_ns for one in parts)
            ),
        },
        lookups=observers.lookups,
        history=team.history(whole, ceilings),
        refused=observers.refused(settings.core.components[0]),
        checks=team.checks(
            settings,
            sum(one.byte_checks for one in parts),
            sum(one.access_checks for one in parts),
        ),
        digest=timed.digest,
        components=team.components(settings, None if interrupted else views),
        latency=latency,
        preempted=sum(request.retractions for request in timed.requests),
        interrupted=interrupted,
        storage=use_of_all(settings, observers.prefetches, stores, parts),
        fleet=_use_of(
            options,
            timed,
            timed.choices,
            team,
            account,
            ceilings,
            [one.digest for one in parts],
        ),
    )


def _hits(
    whole: Paged,
    paged: Paged,
    settings: Settings,
    options: FleetOptions,
    account: Account,
    team: Team,
    shown: Shown,
    contents: Contents | None,
) -> Run:
    """One request at a time. For the loads that a router counts, the last few requests are in
    flight."""
    core = replace(settings.core, kv_events=reads_events(options.router.name))
    desk = Desk(paged, options.replicas, options.router, lambda: 0)
    recorders = [Recorder(lambda: 0, KV_EVENTS) for _ in range(options.replicas)]
    observers = team.counting
    stores, replicas = [], []
    uncached = settings.uncached.requests
    if team.histories:
        team.histories[0].misses |= dict.fromkeys(uncached, Miss(TOO_LARGE, 0))
    for place, recorder in enumerate(recorders):
        store = None
        if contents is not None:
            executor = ImmediateStore(contents, core.components, PageBytes(None))
            store = HitsStorage(executor, observers.prefetches)
            stores.append(executor)
            team.histories[place].asked = asked_of(executor)
        seen: list[Observer] = [recorder, Window(desk, place), *team.all[place]]
        replicas.append(HitsReplay(paged, core, account, seen, store, uncached=uncached))
    interrupted = False
    with shown("replay", len(paged.jobs)) as report:
        gc.disable()  # reference counting frees everything; a collection scans the whole tree
        try:
            in_flight: deque[int] = deque()
            for done, job in enumerate(paged.jobs):
                if len(in_flight) == HELD_IN_HITS * len(replicas):
                    desk.ended(in_flight.popleft())
                replicas[desk.choose(job)].serve(job)
                in_flight.append(job.index)
                if not done & 63:
                    report(done)
            report(len(paged.jobs))
        except (KeyboardInterrupt, Served):
            interrupted = True
        finally:
            gc.enable()
    views = [one.core.view for one in replicas]
    if not interrupted:
        team.finish(views)
    ceilings = _ceilings(paged, desk.choices, options, whole_prompts=True)
    digests = [one.digest() for one in recorders]
    return Run(
        account=account,
        transfers={
            "d2h": Transfer(settings.bytes_of(observers.tally.backed_up), None),
            "h2d": Transfer(settings.bytes_of(observers.tally.loaded), None),
        },
        lookups=observers.lookups,
        history=team.history(whole, ceilings),
        refused=observers.refused(core.components[0]),
        checks=team.checks(settings),
        digest=digest_of(digests),
        components=team.components(settings, None if interrupted else views),
        interrupted=interrupted,
        storage=use_of_all(settings, observers.prefetches, stores),
        fleet=_use_of(options, None, desk.choices, team, account, ceilings, digests),
    )


def _ceilings(
    paged: Paged, choices: dict[int, int], options: FleetOptions, whole_prompts: bool
) -> Tokens:
    """Prompt tokens of each request that an earlier one sent to the same replica had. A prefill
    replica does not have the answers."""
    numbers = paged.jobs.numbers
    places = np.array([choices.get(number, -1) for number in numbers.tolist()])
    found = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int32)
    for place in range(options.replicas):
        others = frozenset(numbers[places != place].tolist())
        sent = (_Prompts if options.decode else Kept)(paged, Skipped(others))
        own = ceiling_of(sent, whole_prompts)
        found[: len(own)] += own
    return found


class _Prompts(Kept):
    """A trace of which no answer is known."""

    def chain(self, job: Job) -> Pages:
        return super().chain(job)[: job.input_length // self.page_size]


def _use_of(
    options: FleetOptions,
    timed: FleetResult | None,
    choices: dict[int, int],
    team: Team,
    account: Account,
    ceilings: Tokens,
    digests: Sequence[str],
) -> FleetUse:
    """What each replica did. timed: None in hits mode."""
    rows = list(account.rows())
    chosen = [choices[row.request] for row in rows]
    replicas = []
    for place in range(options.members):
        routed = place < options.replicas
        own = [row for row, replica in zip(rows, chosen, strict=True) if replica == place]
        role = (PREFILL if options.decode else MIXED) if routed else DECODE
        replicas.append(
            ReplicaUse(
                role,
                len(own) if routed or timed is None else len(timed.members[place].requests),
                sum(row.input_tokens for row in own),
                sum(row.hit_tokens for row in own),
                _sampled(timed, place, role),
                _ttft(timed, place) if routed else NO_PAGES,
                team.evicted(place),
                team.watches[place].operations if team.watches else 0,
                digests[place],
            )
        )
    elsewhere = sum(row.ceiling - int(ceilings[row.request]) for row in rows)
    trips, link = None, None
    if options.decode and timed is not None:
        trips, link = timed.trips, LinkTotals(timed.link.bytes, timed.link.busy_ns)
    return FleetUse(options, tuple(replicas), choices, elsewhere, trips, link)


def _sampled(timed: FleetResult | None, place: int, role: str) -> int:
    """Tokens that a replica sampled. A prefill replica samples the first of each answer."""
    if timed is None:
        return 0
    first = 1 if role == DECODE else 0
    return sum(max(1, one.output_length) - first for one in timed.members[place].requests)


def _ttft(timed: FleetResult | None, place: int) -> Pages:
    if timed is None:
        return NO_PAGES
    requests = timed.members[place].requests
    times = [one.first_token_ns - one.arrival_ns for one in requests]
    return np.array(times, dtype=np.int64)
