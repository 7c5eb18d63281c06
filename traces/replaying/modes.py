"""Runs one replay in either mode: sets up the observers, runs, and returns the results.

Does not define the modes (see hits and sim), the options, or the report.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hicache.core.view import CoreView
from invariants.accounts.accounts import Accounts
from invariants.watch import Watch
from sim.recorder import Recorder
from sim.rounds import RoundOptions
from sim.storage.contents import Contents
from sim.storage.immediate import ImmediateStore
from sim.storage.page_bytes import PageBytes

from ..formats.base import Paged, Trace
from ..terminal.progress import progress
from . import timed as replay_timed
from .account import Account, ceiling_of
from .fitting import without
from .fleet.run import run_fleet
from .following.copies import Copies
from .following.history import TOO_LARGE, History, Miss
from .hits import HitsReplay, HitsStorage
from .observing.observers import Observers, checks_of
from .observing.until import Served, Until
from .run import Run, Transfer
from .settings import Settings
from .storage_use import asked_of, opened, use_of
from .turns import by_turn, conversations

Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def run(
    trace: Trace,
    paged: Paged,
    settings: Settings,
    watch: Watch | None,
    start: float,
    follow: bool = False,
    until: int | None = None,
    shown: Progress | None = None,
) -> Run:
    """One replay in the mode of the settings. start: time.perf_counter() when the command began.

    follow: keep the history of every page, and with a clock the time of every copy. until: stop
    when this request has been served. shown: shows the progress, instead of standard error.
    """
    timed = settings.mode == "timed"
    whole, paged = paged, without(paged, settings.skipped)
    ceiling = ceiling_of(paged, whole_prompts=not timed)
    account = Account(trace.jobs, paged.page_size, ceiling)
    turns, told_by = conversations(trace, whole)
    rounds_of = turns if told_by == "after" else np.zeros_like(turns)
    if settings.fleet is not None:
        with opened(settings) as contents:
            result = run_fleet(
                whole, paged, settings, account, watch, follow, until, shown or progress, contents
            )
        wall_s = time.perf_counter() - start
        return replace(result, turns=by_turn(account, turns), turns_from=told_by, wall_s=wall_s)
    observers = Observers(settings, ceiling, watch)
    if follow or settings.storage is not None:
        pages = -(-ceiling // paged.page_size)
        stored = settings.storage is not None
        history = History(whole, settings.core.components, pages, not timed, stored)
        observers.history = history
        observers.all.append(history)
    if follow and timed:
        observers.copies = Copies(settings.page_bytes_total, settings.value_bytes)
        observers.all.append(observers.copies)
    if settings.check == "every":
        turn_of = rounds_of.tolist() if settings.flushed else ()
        observers.accounts = Accounts(paged.jobs, paged.page_size, settings.speed, turns=turn_of)
        observers.all.append(observers.accounts)
    if until is not None:
        observers.all.append(Until(until))
    rounds = RoundOptions(rounds_of.tolist(), settings.flushed) if settings.flushed else None
    with opened(settings) as contents:
        result, view = (_timed if timed else _hits)(
            paged, settings, account, observers, watch, shown or progress, contents, rounds
        )
    return replace(
        result,
        components=observers.components(settings, None if result.interrupted else view),
        turns=by_turn(account, turns),
        turns_from=told_by,
        wall_s=time.perf_counter() - start,
    )


def _hits(
    paged: Paged,
    settings: Settings,
    account: Account,
    observers: Observers,
    watch: Watch | None,
    shown: Progress,
    contents: Contents | None,
    rounds: RoundOptions | None,
) -> tuple[Run, CoreView]:
    recorder = Recorder(lambda: 0)
    store = None
    if contents is not None:
        executor = ImmediateStore(contents, settings.core.components, PageBytes(None))
        store = HitsStorage(executor, observers.prefetches)
        if observers.history is not None:
            observers.history.asked = asked_of(executor)
    watched = (recorder, *observers.all)
    uncached, wants = settings.uncached.requests, settings.wants
    hits = HitsReplay(paged, settings.core, account, watched, store, rounds, uncached, wants)
    if observers.history is not None:
        observers.history.misses |= dict.fromkeys(uncached, Miss(TOO_LARGE, 0))
    interrupted = False
    with shown("replay", len(paged.jobs)) as report:
        gc.disable()  # reference counting frees everything; a collection scans the whole tree
        try:
            hits.run(report)
        except (KeyboardInterrupt, Served):
            interrupted = True
        finally:
            gc.enable()
    if watch and not interrupted:
        watch.finish(hits.core.view)
    use = use_of(settings, observers.prefetches, store.executor) if store is not None else None
    result = Run(
        account=account,
        transfers={
            "d2h": Transfer(settings.bytes_of(observers.tally.backed_up), None),
            "h2d": Transfer(settings.bytes_of(observers.tally.loaded), None),
        },
        lookups=observers.lookups,
        history=observers.history,
        accounts=observers.accounts,
        refused=observers.refused(settings.core.components[0]),
        checks=checks_of(settings, watch),
        digest=recorder.digest(),
        interrupted=interrupted,
        storage=use,
    )
    return result, hits.core.view


def _timed(
    paged: Paged,
    settings: Settings,
    account: Account,
    observers: Observers,
    watch: Watch | None,
    shown: Progress,
    contents: Contents | None,
    rounds: RoundOptions | None,
) -> tuple[Run, CoreView]:
    interrupted = False
    with shown("replay", len(paged.jobs)) as report:
        world = replay_timed.build(paged, settings, observers.all, report, contents, rounds)
        if observers.history is not None:
            observers.history.now_ns = lambda: world.clock.now_ns
            if world.store is not None:
                observers.history.asked = asked_of(world.store)
        if observers.copies is not None:
            observers.copies.now_ns = lambda: world.clock.now_ns
        if observers.accounts is not None:
            observers.accounts.now_ns = lambda: world.clock.now_ns
            world.sent = observers.accounts.sent
        try:
            world.run()
        except (KeyboardInterrupt, Served):
            interrupted = True
    if watch and not interrupted:
        watch.finish(world.core.view)
    timed = world.result()
    use = None
    if world.store is not None:
        use = use_of(settings, observers.prefetches, world.store, timed.reads, timed.writes)
    run_ = Run(
        account=account,
        transfers={
            "d2h": Transfer(timed.d2h.bytes, timed.d2h.busy_ns),
            "h2d": Transfer(timed.h2d.bytes, timed.h2d.busy_ns),
        },
        lookups=observers.lookups,
        history=observers.history,
        accounts=observers.accounts,
        refused=observers.refused(settings.core.components[0]),
        checks=checks_of(settings, watch, timed.byte_checks, timed.access_checks),
        digest=timed.digest,
        latency=replay_timed.record_result(timed, account),
        preempted=sum(request.retractions for request in timed.requests),
        interrupted=interrupted,
        storage=use,
        copies=observers.copies,
    )
    return run_, world.core.view
