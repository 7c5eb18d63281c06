"""Measures several points in processes of their own, each of which reads the trace itself.

A process that is no longer wanted (after Ctrl-C, or beside one that failed) is killed; what was
measured before is kept. Does not know what a point is for; see words and picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import Array, c_int64
from functools import partial
from multiprocessing import get_context
from typing import TypeAlias

from hicache.core.errors import CallerError

from ..formats.base import Trace
from ..outside import entries
from ..replaying.builtin import opened
from ..replaying.options import ReplayOptions
from ..terminal.processes import ProcessLost, results
from .points import Point, measure

Counts: TypeAlias = "Array[c_int64]"


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
    context = get_context("spawn")
    # without a lock, which a process that is killed would keep
    counts: Counts = context.RawArray(c_int64, len(sizes))
    work = partial(_work, options, entries.given(), counts)
    places = list(enumerate(sizes))
    try:
        yield from results(context, work, places, jobs, watch=lambda: progress(sum(counts[:])))
    except ProcessLost as lost:
        raise CallerError(
            f"expected an answer of every process, found that {lost}, or fewer sizes"
        ) from None


def _after(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: progress(before + done)


def _work(
    options: ReplayOptions, outside: entries.Outside, counts: Counts, point: tuple[int, int]
) -> Point:
    place, size = point
    entries.load(outside)
    options, trace = opened(options)

    def progress(done: int) -> None:
        counts[place] = done

    return measure(options, trace, size, progress)
