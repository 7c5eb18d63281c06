"""A study of sizes, step by step: the trace, its curve, a pilot, the points, their replays.

    curve     exact, of the whole trace: which sizes are worth a replay
    pilot     a short replay: at which speed the machine can serve the trace
    points    see plan; of a sampled trace they are scaled, see sampling
    replays   in processes, resumable

Does not print or conclude; see output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from hicache.version import VERSION

from ..curves.curves import CurveOptions, Curves, curves_of
from ..formats.base import Paged, Trace
from ..outside import entries
from ..replaying.options import ReplayOptions
from ..replaying.settings import Settings, resolve
from ..reporting import timestamps
from ..sweeping.grid import Point, check_simulated, tasks_of
from ..sweeping.identity import canonical, decisions, trace_digest
from ..sweeping.running import How, Measured, measured
from ..sweeping.work import PointWork, Traces, opened_once
from ..terminal.workers import cores
from . import plan, sampling
from .pilot import Pilot, pilot


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for beside the replay. sizes: bytes of host memory; None to choose them.
    budget_s: None without one. The others as in sweeping/running."""

    sizes: Sequence[int] | None
    budget_s: float | None
    executor: str
    jobs: int
    path: str | None


@dataclass(frozen=True, slots=True)
class Study:
    """All that a report is made of. trace, paged, settings: whole, without host memory. curves:
    None for a trace of lengths only. rate: the part that was replayed. error: of hit rates, if that
    is not all. points: documents, with the sizes that they stand for. spread: whether a coarse
    clock was spread although nobody asked for it."""

    trace: Trace
    paged: Paged
    settings: Settings
    options: ReplayOptions
    curves: Curves | None
    ladder: plan.Ladder
    pilot: Pilot | None
    rate: Fraction
    error: sampling.Error | None
    measured: Measured
    points: Sequence[dict[str, Any]]
    tasks: int
    spread: bool


def study(given: ReplayOptions, asked: Asked, command: str) -> Study:
    """Runs everything. Raises CallerError for what cannot be run, before the first replay."""
    check_simulated(given.storage)
    traces = Traces()
    base = replace(given, check=given.check or "off", host_ratio=Fraction(0), sample=None)
    base, spread = _spread(base, traces)
    bare = plan.bare(base)
    trace = traces(bare)
    settings, paged = resolve(bare, trace)
    curves, steps = None, plan.Ladder((), 0)
    if trace.identity:
        page_bytes, device = (
            settings.page_bytes[0] * settings.page_ranks,
            settings.core.device_pages[0],
        )
        each = page_bytes // paged.page_size
        curves = curves_of(trace, paged, CurveOptions(device_pages=device, bytes_per_token=each))
        steps = plan.ladder(curves.lru, page_bytes, device, asked.sizes, base.exclusive)
    tried = pilot(bare, traces) if _open_loop(base) else None
    speed = base.speed or (tried.served if tried else Fraction(1))
    chosen = plan.points(base, steps, speed) if curves else plan.points_of_lengths(base, speed)
    chosen = _possible(chosen, trace)
    rate = given.sample or Fraction(1)
    if asked.budget_s is not None:
        jobs = asked.jobs or cores()
        rate = sampling.part_for(
            asked.budget_s, trace, paged.page_size, len(chosen), min(jobs, len(chosen))
        )
    error = None
    if rate < 1:
        if curves is not None:
            error = sampling.error_of(trace, curves.lru, rate, paged.page_size)
        chosen = _scaled(chosen, rate, settings, tried, trace)
    followed = plan.followed(chosen, steps)
    found, documents = _replayed(chosen, followed, asked, command, base, rate)
    return Study(
        *(trace, paged, settings, base, curves, steps, tried, rate, error, found, documents),
        len(chosen),
        spread,
    )


def _spread(
    base: ReplayOptions, traces: Callable[[ReplayOptions], Trace]
) -> tuple[ReplayOptions, bool]:
    """The options with --spread, where the clock of the trace is coarse and nobody decided."""
    if base.spread is not None or base.arrivals is not None or not _open_loop(base):
        return base, False
    coarse = timestamps.is_coarse(traces(base).jobs)
    return (replace(base, spread=True), True) if coarse else (base, False)


def _open_loop(options: ReplayOptions) -> bool:
    """Whether requests arrive at times of their own."""
    return options.concurrency is None and not options.closed_loop


def _possible(chosen: Sequence[tuple[str, Point]], trace: Trace) -> list[tuple[str, Point]]:
    """The points that can be replayed; all but the first one may be left out. Raises CallerError
    if the first one cannot."""
    found = []
    for place, (label, point) in enumerate(chosen):
        try:
            resolve(point.options, trace)
        except CallerError:
            optional = point.options.tp != chosen[0][1].options.tp
            if not place or not optional:
                raise
            continue
        found.append((label, point))
    return found


def _scaled(
    chosen: Sequence[tuple[str, Point]],
    rate: Fraction,
    settings: Settings,
    tried: Pilot | None,
    trace: Trace,
) -> list[tuple[str, Point]]:
    """The points for the sampled trace."""
    jobs = trace.jobs
    largest = int((jobs.input_lengths.astype(np.int64) + jobs.output_lengths).max(initial=1))
    running = tried.running_tokens if tried else settings.core.device_pages[0]
    found = []
    for label, point in chosen:
        core = resolve(point.options, trace)[0].core
        device = core.device_pages[0] * core.page_size
        least = -(-largest // core.page_size) * core.page_size
        page_bytes = settings.page_bytes[0] * settings.page_ranks
        scaled = sampling.scaled(point, rate, device, running, least, page_bytes)
        resolve(scaled.options, opened_once(scaled.options))  # raises before anything runs
        found.append((label, scaled))
    return found


def _replayed(
    chosen: Sequence[tuple[str, Point]],
    followed: Collection[str],
    asked: Asked,
    command: str,
    base: ReplayOptions,
    rate: Fraction,
) -> tuple[Measured, list[dict[str, Any]]]:
    digest = trace_digest(base.trace)
    places = {place for place, (label, _) in enumerate(chosen) if label in followed}
    tasks = tasks_of([point for _, point in chosen], {}, digest, places)
    tasks = [
        replace(task, label=label, command=command)
        for task, (label, _) in zip(tasks, chosen, strict=True)
    ]
    # those without host memory take the least time: last, they leave no core idle for long
    tasks.sort(key=lambda task: not task.point["host_bytes"])
    header: Mapping[str, object] = {
        "hicache_version": VERSION,
        "decisions": decisions(),
        "command": command,
        "trace": {"path": base.trace, "sha256": digest},
        "base": canonical(base),
        "grid": {},
    }
    work = partial(PointWork, digest, decisions(), entries.given())
    how = How(asked.executor, asked.jobs, asked.path, "size")
    requests = len(opened_once(tasks[0].options).jobs)
    found = measured(work, tasks, how, header, requests)
    order = {label: place for place, (label, _) in enumerate(chosen)}
    documents = sorted(found.points, key=lambda one: order[one["label"]])
    if rate == 1:
        return found, documents
    speeds = {task.key: task.options.speed for task in tasks}
    return found, [sampling.unscaled(one, rate, speeds[one["key"]]) for one in documents]
