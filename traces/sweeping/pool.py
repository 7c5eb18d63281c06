"""Measures several sizes of host memory in processes, each of which reads the trace itself.

A process that is no longer wanted (after Ctrl-C, or beside one that failed) is killed; what was
measured before is kept. Does not know what a point is for; see words and picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from hicache.core.errors import CallerError

from ..executors import local
from ..executors.base import JobOptions
from ..formats.base import Trace
from ..outside import entries
from ..replaying.options import ReplayOptions
from ..terminal.processes import WorkerLost
from .board import Board, board
from .points import Point, measure
from .work import opened_once


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
