"""Replays a trace that is read once. The figures are those of a replay that holds its trace.

What needs every request at the end is left out: turns of conversations, histories, single requests.
Does not define the modes (see hits and sim) or the report.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.view import CoreView
from invariants.watch import Watch
from sim.engine.sequence import RequestResult
from sim.recorder import Recorder

from ...formats._streamed import StreamedPages, StreamedTrace
from ...terminal.progress import counting, progress
from ..hits import HitsReplay
from ..observing.observers import Observers, checks_of
from ..run import Run, Transfer
from ..settings import Settings
from ..timed import build
from .parts import Parts, Streaming
from .sums import Each, Sums
from .times import Times


def run(
    trace: StreamedTrace,
    settings: Settings,
    watch: Watch | None,
    start: float,
    each: Each | None = None,
) -> Run:
    """One replay. start: time.perf_counter() when the command began. each: see `Sums`."""
    core = settings.core
    if len(core.components) > 1:
        raise CallerError(
            f"--components: expected full alone for a trace that is read once, found "
            f"{','.join(core.components)}; name one, or a --model with full attention"
        )
    timed = settings.mode == "timed"
    room = core.device_pages[0] * core.page_size
    pages = StreamedPages(trace, core.page_size, room, not timed, not timed)
    trace.jobs = pages.jobs
    sums = Sums(core.page_size, pages.held, each)
    observers = Observers(settings, np.zeros(0, dtype=np.int32), watch)
    shown = progress("replay", trace.total) if trace.total else counting("replay")
    streamed = Streamed(pages, settings, sums, observers, watch, Parts())
    with shown as report:
        result, view = (_timed if timed else _hits)(streamed, report)
    streaming = result.streaming or Streaming(True, 1, streamed.parts)
    return replace(
        result,
        components=observers.components(settings, None if result.interrupted else view),
        streaming=replace(streaming, remembered=not pages.ceiling.forgot, group=sums.group),
        wall_s=time.perf_counter() - start,
    )


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a replay in either mode needs."""

    pages: StreamedPages
    settings: Settings
    sums: Sums
    observers: Observers
    watch: Watch | None
    parts: Parts


def _hits(streamed: Streamed, report: Callable[[int], None]) -> tuple[Run, CoreView]:
    settings, observers = streamed.settings, streamed.observers
    recorder = Recorder(lambda: 0)
    hits = HitsReplay(
        streamed.pages,
        settings.core,
        streamed.sums,
        (recorder, *observers.all),
        wants=settings.wants,
        ended=streamed.parts.ended,
    )
    interrupted = False
    gc.disable()  # reference counting frees everything; a collection scans the whole tree
    try:
        hits.run(report)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        gc.enable()
    if streamed.watch and not interrupted:
        streamed.watch.finish(hits.core.view)
    result = Run(
        account=streamed.sums,
        transfers={
            "d2h": Transfer(settings.bytes_of(observers.tally.backed_up), None),
            "h2d": Transfer(settings.bytes_of(observers.tally.loaded), None),
        },
        lookups=observers.lookups,
        refused=observers.refused(settings.core.components[0]),
        checks=checks_of(settings, streamed.watch),
        digest=recorder.digest(),
        interrupted=interrupted,
    )
    return result, hits.core.view


def _timed(streamed: Streamed, report: Callable[[int], None]) -> tuple[Run, CoreView]:
    settings, observers = streamed.settings, streamed.observers
    world = build(streamed.pages, settings, observers.all, report)
    times = Times()

    def told(one: RequestResult) -> None:
        streamed.sums.result = one
        streamed.sums.admit(one.request, one.device_tokens, one.host_tokens, one.storage_tokens)
        streamed.pages.forget(one.request)
        times.ended(one)
        streamed.parts.ended()
        if times.due():
            times.fold(world.engine.gaps, world.engine.sequences.values())

    world.told = told
    interrupted = False
    try:
        world.run()
    except KeyboardInterrupt:
        interrupted = True
    if streamed.watch and not interrupted:
        streamed.watch.finish(world.core.view)
    times.fold(world.engine.gaps, world.engine.sequences.values())
    timed = world.result()
    result = Run(
        account=streamed.sums,
        transfers={
            "d2h": Transfer(timed.d2h.bytes, timed.d2h.busy_ns),
            "h2d": Transfer(timed.h2d.bytes, timed.h2d.busy_ns),
        },
        lookups=observers.lookups,
        refused=observers.refused(settings.core.components[0]),
        checks=checks_of(settings, streamed.watch, timed.byte_checks, timed.access_checks),
        digest=timed.digest,
        latency=times.latency(timed.makespan_ns),
        preempted=times.preempted,
        interrupted=interrupted,
        streaming=Streaming(True, 1, streamed.parts, times.exact, times.offered),
    )
    return result, world.core.view
