"""Runs one replay in either mode: sets up the observers, runs, and returns the results.

Does not define the modes (see hits and sim), the options, or the report.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.events import Event, Finished
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.accounts.accounts import Accounts
from invariants.books.garbage import garbage_report
from invariants.books.kinds import KNOWN
from invariants.watch import Watch, excuses_by_check
from sim.recorder import Recorder
from sim.rounds import RoundOptions
from sim.storage.contents import Contents
from sim.storage.immediate import ImmediateStore
from sim.storage.page_bytes import PageBytes

from ..formats.base import Paged, Trace
from ..terminal.progress import progress
from . import timed as replay_timed
from .account import Account, Tokens, ceiling_of
from .fitting import without
from .following.copies import Copies
from .following.history import TOO_LARGE, History, Miss
from .following.prefetches import Prefetches
from .hits import HitsReplay, HitsStorage
from .lookups import Lookups
from .run import Checks, ComponentUse, Run, Transfer
from .settings import Settings
from .storage_use import asked_of, opened, use_of
from .tally import Tally
from .turns import by_turn, conversations

Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


class _Served(Exception):
    """The request that the replay was to reach has been served."""


class _Until:
    """An observer that ends the run at the first event after a request has finished."""

    def __init__(self, request: int) -> None:
        self._request = request
        self._served = False

    def on_event(self, event: Event, view: CoreView) -> None:
        if self._served:
            raise _Served

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if type(event) is Finished and event.request == self._request:
            self._served = True


class _Observers:
    """The observers that count, and the checks if they are on."""

    def __init__(self, settings: Settings, ceiling: Tokens, watch: Watch | None) -> None:
        self.tally = Tally()
        self.lookups = Lookups(settings.core.components, -(-ceiling // settings.core.page_size))
        self.history: History | None = None
        self.accounts: Accounts | None = None
        self.prefetches = Prefetches()
        self.copies: Copies | None = None
        self.all: list[Observer] = [self.tally]
        if settings.storage is not None:
            self.all.append(self.prefetches)
        if len(settings.core.components) > 1:  # for full alone, the account is enough
            self.all.append(self.lookups)
        if watch:
            self.all.append(watch)

    def components(self, settings: Settings, view: CoreView | None) -> tuple[ComponentUse, ...]:
        """The use of each component. view: of the core at the end, None after an interrupt."""
        known = {*settings.core.components} <= {*KNOWN}
        garbage = garbage_report(view) if view and known else {}
        uses, tally, core = [], self.tally, settings.core
        for place, name in enumerate(core.components):
            tiers = [garbage.get(f"{tier} {name}", {}) for tier in ("device", "host")]
            uses.append(
                ComponentUse(
                    name,
                    settings.page_bytes[place],
                    (core.device_pages[place], core.host_pages[place]),
                    tally.loaded[name],
                    tally.backed_up[name],
                    (tally.evicted[Tier.DEVICE, name], tally.evicted[Tier.HOST, name]),
                    self.lookups.peak_pages[place],
                    self.lookups.evicted_along[place],
                    (tiers[0]["cached"], tiers[1]["cached"]) if garbage else None,
                    (tiers[0]["garbage"], tiers[1]["garbage"]) if garbage else None,
                )
            )
        return tuple(uses)

    def refused(self, backbone: str) -> dict[str, int]:
        return {
            reason if component == backbone else f"{reason} of {component}": count
            for (reason, component), count in self.tally.refused.items()
        }


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
    observers = _Observers(settings, ceiling, watch)
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
        observers.all.append(_Until(until))
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
    observers: _Observers,
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
    uncached = settings.uncached.requests
    hits = HitsReplay(paged, settings.core, account, watched, store, rounds, uncached)
    if observers.history is not None:
        observers.history.misses |= dict.fromkeys(uncached, Miss(TOO_LARGE, 0))
    interrupted = False
    with shown("replay", len(paged.jobs)) as report:
        gc.disable()  # reference counting frees everything; a collection scans the whole tree
        try:
            hits.run(report)
        except (KeyboardInterrupt, _Served):
            interrupted = True
        finally:
            gc.enable()
    if watch and not interrupted:
        watch.finish(hits.core.view)
    use = use_of(settings, observers.prefetches, store.executor) if store is not None else None
    result = Run(
        account=account,
        transfers={
            "d2h": Transfer(_bytes(settings, observers.tally.backed_up), None),
            "h2d": Transfer(_bytes(settings, observers.tally.loaded), None),
        },
        lookups=observers.lookups,
        history=observers.history,
        accounts=observers.accounts,
        refused=observers.refused(settings.core.components[0]),
        checks=_checks(settings, watch),
        digest=recorder.digest(),
        interrupted=interrupted,
        storage=use,
    )
    return result, hits.core.view


def _bytes(settings: Settings, pages: Counter[str]) -> int:
    sizes = zip(settings.core.components, settings.page_bytes, strict=True)
    return sum(pages[name] * size for name, size in sizes)


def _timed(
    paged: Paged,
    settings: Settings,
    account: Account,
    observers: _Observers,
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
        try:
            world.run()
        except (KeyboardInterrupt, _Served):
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
        checks=_checks(settings, watch, timed.byte_checks, timed.access_checks),
        digest=timed.digest,
        latency=replay_timed.record_result(timed, account),
        preempted=sum(request.retractions for request in timed.requests),
        interrupted=interrupted,
        storage=use,
        copies=observers.copies,
    )
    return run_, world.core.view


def _checks(settings: Settings, watch: Watch | None, bytes_: int = 0, accesses: int = 0) -> Checks:
    if watch is None:
        return Checks(settings.check)
    return Checks(
        settings.check,
        watch.operations,
        watch.incremental,
        watch.full,
        watch.violations,
        bytes_,
        accesses,
        watch.unjudged,
        excuses_by_check(watch.excuses),
    )
