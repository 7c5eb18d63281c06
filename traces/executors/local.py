"""Does jobs on the cores of this machine, in processes of their own: new ones, or on Linux, where
that was asked for, copies of the command's, which need not import or read anything again.

With a hash seed in the options, each worker has its own, so that an order that comes from hashing
is not the same in all of a run. A worker does many jobs and keeps what it has read. Does not know
what a job is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from multiprocessing import get_context

from ..terminal.processes import results
from ..terminal.workers import MOST_HASH_SEED, cores
from .base import Done, Job, JobOptions, Results


def run(
    work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
) -> Results[Done]:
    workers, seed = workers or cores(), options.hash_seed

    def settings(number: int) -> dict[str, str]:
        return {} if seed is None else {"PYTHONHASHSEED": str((seed + number) % MOST_HASH_SEED)}

    if workers == 1:
        return (work(job) for job in jobs)
    forked = options.forked and sys.platform == "linux"
    return results(
        get_context("fork") if forked else get_context("spawn"),
        work,
        jobs,
        workers,
        watch=options.watch,
        keep=True,
        settings=settings,
        lost=options.lost,
    )
