"""Runs tasks on an executor, and yields their documents as they arrive.

Does not choose points (see grid) or keep what is done (see sweep_file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from ..executors import base as executors
from ..terminal.workers import cores
from .board import Board, board
from .work import PointWork, Task

LOCAL = "local"


def run(
    work: Callable[[Board], PointWork],
    tasks: Sequence[Task],
    executor: str,
    jobs: int,
    shown: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """The document of each task, in any order. jobs: worker processes, 0 for one on each core.
    shown: takes the number of requests that all tasks have done so far.

    A worker that is lost ends the run with WorkerLost, which names a point.
    """
    if executor == LOCAL:
        jobs = min(jobs or cores(), len(tasks)) or 1
    with board(len(tasks)) as far:
        whole = work(far)
        if executor == LOCAL and jobs == 1:  # nobody watches the board
            whole = replace(whole, shown=lambda *_: shown(far.total()))
        manner = executors.Manner(_lost, ahead=1, watch=lambda: shown(far.total()))
        played = executors.load(executor).run(whole, iter(tasks), jobs, manner)
        with closing(played) as results:
            yield from results


def _lost(task: Task, open_tasks: int, how_ended: str) -> str:
    others = f" and {open_tasks - 1} others" if open_tasks > 1 else ""
    return (
        f"a worker was lost within the point {task.label}{others}: {how_ended}; what is done is "
        "kept, and --jobs 1 does the rest in one process"
    )
