"""`hicache replay`: from options to a report. Wires a trace, a core, observers and a mode together.

Must not live here: option parsing (traces/cli), either mode's loop, or what the report looks like.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import TextIO, cast

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.books.garbage import garbage_report
from invariants.watch import Level, Watch
from sim.recorder import Recorder

from ..formats._open import open_trace
from ..formats.base import Paged, Trace
from ..replaying import builtin
from ..replaying import timed as replay_timed
from ..replaying.account import Account, ceiling_of
from ..replaying.hits import HitsReplay
from ..replaying.lookups import Lookups
from ..replaying.report import print_report, print_story
from ..replaying.results import document, write_json
from ..replaying.run import Checks, ComponentUse, Run, Transfer
from ..replaying.settings import Settings, resolve
from ..replaying.tally import Tally
from ..replaying.turns import by_turn, turns_of
from ..terminal.output import check_writable
from ..terminal.progress import progress

INTERRUPTED = 130


def replay(options: argparse.Namespace, command: str) -> int:
    """The exit code. `command`: what the user typed, for the story of a violation."""
    started = time.perf_counter()
    if options.json:
        check_writable(options.json)
    # a document on standard output stands alone
    out = sys.stderr if options.json == "-" else sys.stdout
    trace = _open(options, out)
    settings, paged = resolve(options, trace)
    _check_sizes(trace, settings, paged.knows_output)
    watch = None
    if settings.check != "off":
        watch = Watch(cast(Level, settings.check), replay_command=command)
    run = _run(trace, paged, settings, watch, started)
    if options.compare_eviction and not run.interrupted:
        order = options.compare_eviction
        other = _run(trace, paged, _in_order(settings, order), None, time.perf_counter())
        run = replace(run, compared=(order, other.account.whole(), other.account.steady()))
    print_report(trace, settings, run, out)
    if run.interrupted:
        return INTERRUPTED
    if options.json:
        write_json(options.json, document(trace, settings, run))
    return 0


def _open(options: argparse.Namespace, out: TextIO) -> Trace:
    if options.check is None:
        options.check = "sampled" if options.trace is not None else builtin.CHECK
    if options.trace is not None:
        return open_trace(options.trace, options.format, options.limit)
    if options.device_tokens is None and options.device_pages is None:
        options.device_tokens = builtin.DEVICE_TOKENS
    if options.host_ratio is None and options.host_pages is None:
        options.host_ratio = builtin.HOST_RATIO
    print_story(builtin.STORY, out)
    return builtin.builtin_trace(options.limit)


def _check_sizes(trace: Trace, settings: Settings, knows_output: bool) -> None:
    """Every request must fit the device pool alone, or it could only wait for ever."""
    size, pages = settings.core.page_size, settings.core.device_pages[0]
    with_output = settings.mode == "timed" or knows_output
    for job in trace.jobs:
        length = job.input_length + (job.output_length - 1 if with_output else 0)
        if length > pages * size:
            needed = -(-length // size)
            raise CallerError(
                f"{trace.path}:{trace.line_numbers[job.index]}: expected a request of at most "
                f"{pages} pages of {size} tokens (the device pool of full), found one of {needed} "
                f"pages ({length} tokens); give --device-pages {needed} or more"
            )


def _in_order(settings: Settings, order: str) -> Settings:
    """The same but for the order of eviction, and without checks: it is there for its hits."""
    return replace(settings, check="off", core=replace(settings.core, eviction_policy=order))


class _Books:
    """The observers that count, and the checks if there are any."""

    def __init__(self, settings: Settings, ceiling: Pages, watch: Watch | None) -> None:
        self.tally = Tally()
        self.lookups = Lookups(settings.core.components, -(-ceiling // settings.core.page_size))
        self.observers: list[Observer] = [self.tally]
        if len(settings.core.components) > 1:  # Full alone: the account says it all
            self.observers.append(self.lookups)
        if watch:
            self.observers.append(watch)

    def components(self, settings: Settings, view: CoreView | None) -> tuple[ComponentUse, ...]:
        """view: at rest at the end, None if the run was interrupted."""
        rest = garbage_report(view) if view else {}
        found, tally, core = [], self.tally, settings.core
        for place, name in enumerate(core.components):
            tiers = [rest.get(f"{tier} {name}", {}) for tier in ("device", "host")]
            found.append(
                ComponentUse(
                    name,
                    settings.page_bytes[place],
                    (core.device_pages[place], core.host_pages[place]),
                    tally.loaded[name],
                    tally.backed_up[name],
                    (tally.evicted[Tier.DEVICE, name], tally.evicted[Tier.HOST, name]),
                    self.lookups.most[place],
                    self.lookups.along[place],
                    (tiers[0]["cached"], tiers[1]["cached"]) if view else None,
                    (tiers[0]["garbage"], tiers[1]["garbage"]) if view else None,
                )
            )
        return tuple(found)

    def refused(self, backbone: str) -> dict[str, int]:
        return {
            reason if component == backbone else f"{reason} of {component}": count
            for (reason, component), count in self.tally.refused.items()
        }


def _run(trace: Trace, paged: Paged, settings: Settings, watch: Watch | None, start: float) -> Run:
    """One replay in the mode of the settings. start: when the command began."""
    timed = settings.mode == "timed"
    ceiling = ceiling_of(paged, whole_prompts=not timed)
    account = Account(trace.jobs, paged.page_size, ceiling)
    books = _Books(settings, ceiling, watch)
    run, view = (_timed if timed else _hits)(paged, settings, account, books, watch)
    return replace(
        run,
        components=books.components(settings, None if run.interrupted else view),
        turns=by_turn(account, turns_of(paged)),
        wall_s=time.perf_counter() - start,
    )


def _hits(
    paged: Paged, settings: Settings, account: Account, books: _Books, watch: Watch | None
) -> tuple[Run, CoreView]:
    recorder = Recorder(lambda: 0)
    hits = HitsReplay(paged, settings.core, account, (recorder, *books.observers))
    interrupted = False
    with progress("replay", len(paged.jobs)) as report:
        gc.disable()  # reference counting frees what a run drops; a sweep of the tree is slow
        try:
            hits.run(report)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            gc.enable()
    if watch and not interrupted:
        watch.finish(hits.core.view)
    run = Run(
        account=account,
        transfers={
            "d2h": Transfer(_bytes(settings, books.tally.backed_up), None),
            "h2d": Transfer(_bytes(settings, books.tally.loaded), None),
        },
        lookups=books.lookups,
        refused=books.refused(settings.core.components[0]),
        checks=_checks(settings, watch),
        digest=recorder.digest(),
        interrupted=interrupted,
    )
    return run, hits.core.view


def _bytes(settings: Settings, pages: Counter[str]) -> int:
    sizes = zip(settings.core.components, settings.page_bytes, strict=True)
    return sum(pages[name] * size for name, size in sizes)


def _timed(
    paged: Paged, settings: Settings, account: Account, books: _Books, watch: Watch | None
) -> tuple[Run, CoreView]:
    interrupted = False
    with progress("replay", len(paged.jobs)) as report:
        world = replay_timed.build(paged, settings, books.observers, report)
        try:
            world.run()
        except KeyboardInterrupt:
            interrupted = True
    if watch and not interrupted:
        watch.finish(world.core.view)
    result = world.result()
    run = Run(
        account=account,
        transfers={
            "d2h": Transfer(result.d2h.bytes, result.d2h.busy_ns),
            "h2d": Transfer(result.h2d.bytes, result.h2d.busy_ns),
        },
        lookups=books.lookups,
        refused=books.refused(settings.core.components[0]),
        checks=_checks(settings, watch, result.byte_checks, result.access_checks),
        digest=result.digest,
        latency=replay_timed.book(result, account),
        preempted=sum(request.retractions for request in result.requests),
        interrupted=interrupted,
    )
    return run, world.core.view


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
    )
