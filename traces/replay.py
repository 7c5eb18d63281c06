"""`hicache replay`: from options to a report. Wires a trace, a core, observers and a mode together.

Must not live here: option parsing (traces/cli), either mode's loop, or what the report looks like.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from typing import TextIO, cast

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.runtime.driver import Observer
from invariants.watch import Level, Watch
from sim.recorder import Recorder

from . import builtin, replay_timed
from .account import Account, ceiling_of
from .formats.base import Paged, Trace
from .output import check_writable
from .progress import progress
from .replay_hits import HitsReplay
from .report import print_report, print_story
from .results import document, write_json
from .run import Checks, Run, Transfer
from .settings import Settings, resolve
from .source import open_trace
from .tally import Tally

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
    mode = _timed if settings.mode == "timed" else _hits
    run = mode(trace, paged, settings, watch, started)
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
                f"{pages} pages of {size} tokens (the device pool), found one of {needed} pages "
                f"({length} tokens); give --device-pages {needed} or more"
            )


def _hits(
    trace: Trace, paged: Paged, settings: Settings, watch: Watch | None, started: float
) -> Run:
    account = Account(trace.jobs, paged.page_size, ceiling_of(paged, whole_prompts=True))
    tally, recorder = Tally(), Recorder(lambda: 0)
    observers: Sequence[Observer] = (recorder, tally, *([watch] if watch else ()))
    hits = HitsReplay(paged, settings.core, account, observers)
    interrupted = False
    with progress("replay", len(trace.jobs)) as report:
        gc.disable()  # reference counting frees what a run drops; a sweep of the tree is slow
        try:
            hits.run(report)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            gc.enable()
    if watch and not interrupted:
        watch.finish(hits.core.view)
    return Run(
        account=account,
        transfers={
            "d2h": Transfer(tally.backed_up * settings.bytes_per_page, None),
            "h2d": Transfer(tally.loaded * settings.bytes_per_page, None),
        },
        evicted=(recorder.evicted[Tier.DEVICE], recorder.evicted[Tier.HOST]),
        refused=tally.refused,
        checks=_checks(settings, watch),
        digest=recorder.digest(),
        wall_s=time.perf_counter() - started,
        interrupted=interrupted,
    )


def _timed(
    trace: Trace, paged: Paged, settings: Settings, watch: Watch | None, started: float
) -> Run:
    account = Account(trace.jobs, paged.page_size, ceiling_of(paged, whole_prompts=False))
    tally = Tally()
    observers: Sequence[Observer] = (tally, *([watch] if watch else ()))
    interrupted = False
    with progress("replay", len(trace.jobs)) as report:
        world = replay_timed.build(paged, settings, observers, report)
        try:
            world.run()
        except KeyboardInterrupt:
            interrupted = True
    if watch and not interrupted:
        watch.finish(world.core.view)
    result = world.result()
    latency = replay_timed.book(result, account)
    return Run(
        account=account,
        transfers={
            "d2h": Transfer(result.d2h.bytes, result.d2h.busy_ns),
            "h2d": Transfer(result.h2d.bytes, result.h2d.busy_ns),
        },
        evicted=(result.evicted_device_pages, result.evicted_host_pages),
        refused=tally.refused,
        checks=_checks(settings, watch, result.byte_checks, result.access_checks),
        digest=result.digest,
        wall_s=time.perf_counter() - started,
        latency=latency,
        preempted=sum(request.retractions for request in result.requests),
        interrupted=interrupted,
    )


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
