"""Replays a trace that is read once. The figures are those of a replay that holds its trace.

What needs every request at the end is left out: turns of conversations, histories, single requests.
Does not define the modes (see hits and sim) or the report.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import numpy as np

from hicache.core.errors import CallerError
from hicache.core.view import CoreView
from invariants.watch import Watch
from sim.recorder import Recorder

from ...formats._streamed import StreamedPages, StreamedTrace
from ...terminal.progress import counting, progress
from ..hits import HitsReplay
from ..observing.observers import Observers, checks_of
from ..options import ReplayOptions
from ..run import Run, Transfer
from ..settings import Settings
from ..unread import flag
from .parts import Parts, Streaming
from .sums import Sums


def check(options: ReplayOptions) -> None:
    """Raises CallerError for an option that needs the whole trace, or each request at the end."""
    for name in _WHOLE:
        if getattr(options, name):
            raise CallerError(
                f"{flag(name)}: expected a trace that is held, found one that is read once "
                f"({options.trace}); leave the option out, or write the trace to a file and "
                "replay it without --stream"
            )
    if options.device_pages == "unbounded":
        raise CallerError(
            "--device-pages: expected a number for a trace that is read once, found unbounded; "
            "give one"
        )
    if options.check == "every":
        raise CallerError(
            "--check: expected sampled or off for a trace that is read once, found every, which "
            "counts every request a second time; give one of them"
        )


_WHOLE = (
    *("requests", "html", "plot", "why", "compare_eviction", "sample", "skip_too_large"),
    *("exclusive", "pin", "storage", "flush_host_every_round", "flush_device_every_round"),
    *("replicas", "prefill_replicas", "decode_replicas", "slo", "arrivals", "request_rate"),
    *("spread", "closed_loop", "think_time"),
)


def run(trace: StreamedTrace, settings: Settings, watch: Watch | None, start: float) -> Run:
    """One replay. start: time.perf_counter() when the command began."""
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
    sums = Sums(core.page_size, lambda index: pages.held(index)[:2])
    observers = Observers(settings, np.zeros(0, dtype=np.int32), watch)
    parts = Parts()
    result, view = _hits(pages, settings, sums, observers, watch, parts, trace.total)
    streaming = Streaming(not pages.ceiling.forgot, sums.group, parts)
    return replace(
        result,
        components=observers.components(settings, None if result.interrupted else view),
        streaming=streaming,
        wall_s=time.perf_counter() - start,
    )


def _hits(
    pages: StreamedPages,
    settings: Settings,
    sums: Sums,
    observers: Observers,
    watch: Watch | None,
    parts: Parts,
    total: int,
) -> tuple[Run, CoreView]:
    recorder = Recorder(lambda: 0)
    watched = (recorder, *observers.all)
    hits = HitsReplay(pages, settings.core, sums, watched, wants=settings.wants, ended=parts.ended)
    interrupted = False
    with progress("replay", total) if total else counting("replay") as report:
        gc.disable()  # reference counting frees everything; a collection scans the whole tree
        try:
            hits.run(report)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            gc.enable()
    if watch and not interrupted:
        watch.finish(hits.core.view)
    result = Run(
        account=sums,
        transfers={
            "d2h": Transfer(settings.bytes_of(observers.tally.backed_up), None),
            "h2d": Transfer(settings.bytes_of(observers.tally.loaded), None),
        },
        lookups=observers.lookups,
        refused=observers.refused(settings.core.components[0]),
        checks=checks_of(settings, watch),
        digest=recorder.digest(),
        interrupted=interrupted,
    )
    return result, hits.core.view
