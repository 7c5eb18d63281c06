"""Replays with several sizes of host memory, in processes, and the figures that are kept of each.

A process that is no longer wanted (after Ctrl-C, or beside one that failed) is killed; what was
measured before is kept. Does not print.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from hicache.core.errors import CallerError
from invariants.watch import SPECIFIED_PAGES, Watch

from ..executors import local
from ..executors.base import JobOptions
from ..formats.base import Trace
from ..outside import entries
from ..replaying import modes
from ..replaying.declared.needs import Need
from ..replaying.options import ReplayOptions, that_need
from ..replaying.settings import Settings, resolve
from ..reporting.conclusions import saved_s
from ..reporting.results import result_of
from ..results.record import Spread
from ..terminal.processes import WorkerLost
from .work import Board, board, opened_once


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of one size. host_bytes: as asked for; the pool has whole pages.

    ttft_s and what follows from times is None in `hits` mode. offered: None if the load cannot be
    told. attained_rate, goodput_requests_per_s: None without --slo.
    """

    host_bytes: int
    host_pages: int
    host_tokens: int
    requests: int
    device_hit_rate: float
    host_hit_rate: float
    hit_rate: float
    ceiling_rate: float
    ttft_s: Spread | None
    queueing_share: float | None
    offered: float | None
    overloaded: bool
    saved_compute_s: float | None
    digest: str
    wall_s: float
    attained_rate: float | None = None
    goodput_requests_per_s: float | None = None
    expected_error: Mapping[str, Any] | None = None

    def document(self) -> dict[str, object]:
        return asdict(self)


def with_host(options: ReplayOptions, host_bytes: int) -> ReplayOptions:
    """The options with this much host memory."""
    options = replace(options, host_ratio=None, host_pages=None)
    if host_bytes:
        return replace(options, host_bytes=host_bytes)
    nothing = dict.fromkeys(that_need(Need.HOST))
    return replace(options, host_bytes=None, host_ratio=Fraction(0), exclusive=False, **nothing)  # type: ignore[arg-type]


def measure(
    options: ReplayOptions, trace: Trace, host_bytes: int, progress: Callable[[int], None]
) -> Point:
    """Replays the trace. progress: called with the number of requests done so far.

    A KeyboardInterrupt ends it without a point.
    """
    settings, paged = resolve(with_host(options, host_bytes), trace)
    started = time.perf_counter()
    watch = None if settings.check == "off" else Watch(settings.check, most_pages=SPECIFIED_PAGES)
    run = modes.run(trace, paged, settings, watch, started, shown=lambda *_: nullcontext(progress))
    if run.interrupted:
        raise KeyboardInterrupt
    found = result_of(trace, settings, run)
    whole, load, good = found.whole, found.load, found.slo
    return Point(
        host_bytes=host_bytes,
        host_pages=settings.core.host_pages[0],
        host_tokens=settings.core.host_pages[0] * settings.core.page_size,
        requests=whole.requests,
        device_hit_rate=whole.rate(whole.hit_tokens.device),
        host_hit_rate=whole.rate(whole.hit_tokens.host),
        hit_rate=whole.hit_rate,
        ceiling_rate=whole.ceiling_rate,
        ttft_s=found.latency_s.ttft if found.latency_s else None,
        queueing_share=load.queueing_share if load else None,
        offered=load.offered if load else None,
        overloaded=load is not None and load.overloaded,
        saved_compute_s=None if run.latency is None else saved_s(settings, run),
        digest=run.digest,
        wall_s=found.wall_s,
        attained_rate=good.attained_rate if good else None,
        goodput_requests_per_s=good.goodput_requests_per_s if good else None,
        expected_error=found.expected_error,
    )


def machine(settings: Settings) -> str:
    """The model and the hardware in words."""
    return f"{settings.model.name} on {settings.parallelism.ranks} x {settings.hardware.name}"


@dataclass(frozen=True)
class _Work:
    """Everything that a worker needs beside the size and its place."""

    options: ReplayOptions
    outside: entries.Outside
    board: Board

    def __call__(self, job: tuple[int, int]) -> Point:
        place, size = job
        entries.load(self.outside)
        trace = opened_once(self.options)
        return measure(self.options, trace, size, self.board.writer(place))


def points(
    options: ReplayOptions,
    trace: Trace,
    sizes: Sequence[int],
    jobs: int,
    progress: Callable[[int], None],
) -> Iterator[Point]:
    """The points as they are measured, in any order. progress: gets all requests done so far.

    With one job they are measured here, and the trace is not read again.
    """
    if jobs == 1:
        for place, size in enumerate(sizes):
            yield measure(options, trace, size, _after(place * len(trace.jobs), progress))
        return
    with board(len(sizes)) as far:
        work = _Work(options, entries.given(), far)
        job_options = JobOptions(_lost, ahead=1, watch=lambda: progress(far.total()))
        try:
            with closing(local.run(work, iter(enumerate(sizes)), jobs, job_options)) as results:
                yield from results
        except WorkerLost as lost:
            raise CallerError(str(lost)) from None


def _lost(job: tuple[int, int], open_jobs: int, how_ended: str) -> str:
    return (
        f"a worker process died: {how_ended}; give --jobs 1 to do the same in one process, or "
        "fewer sizes"
    )


def _after(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: progress(before + done)
