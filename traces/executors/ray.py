"""Does jobs on a Ray cluster (RAY_ADDRESS), or on this machine's cores if there is none.

Every machine needs the same version of this project, and the files that a job names. Does not know
what a job is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

import ray

from ..terminal.processes import WorkerLost
from .base import Done, Job, JobOptions

_POLL_S = 0.2


def run(
    work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
) -> Generator[Done]:
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=True)
    do = ray.remote(_do)
    workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    under_way: dict[Any, Job] = {}
    try:
        while True:
            wanted = max(0, workers * options.ahead - len(under_way))
            under_way |= {do.remote(work, job): job for job in islice(jobs, wanted)}
            if not under_way:
                return
            done, _ = ray.wait(list(under_way), num_returns=1, timeout=_POLL_S)
            options.watch()
            for task in done:
                yield _result(task, under_way.pop(task), len(under_way) + 1, options)
    finally:
        for task in under_way:
            ray.cancel(task, force=True)
        ray.shutdown()


def _result(task: Any, job: Any, open_jobs: int, options: JobOptions) -> Any:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        message = (str(error).strip().splitlines() or ["no message"])[-1]
        raise WorkerLost(options.lost(job, open_jobs, f"the cluster says: {message}")) from None


def _do(work: Callable[[Job], Done], job: Job) -> Done:
    return work(job)
