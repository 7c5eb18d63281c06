"""Does jobs on the cores of this machine, in new processes that share nothing.

With a hash seed in the options, each worker has its own, so that an order that comes from hashing
is not the same in all of a run. A worker does many jobs and keeps what it has read. Does not know
what a job is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from typing import Generic

from hicache.core.errors import CallerError

from ..terminal.workers import (
    MOST_HASH_SEED,
    cores,
    deferring_signals,
    environment,
    how_ended,
    ignore_signals,
)
from .base import Done, Job, JobOptions, Results, WorkerLost

_POLL_S = 0.2  # how late Ctrl-C may be
_PATIENCE_S = 5.0  # for the exit code of a worker that is gone


def run(
    work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
) -> Results[Done]:
    workers = workers or cores()
    if workers == 1:
        return (work(job) for job in jobs)
    return _Workers(work, jobs, workers, options)


class _Workers(Generic[Job, Done]):
    """The results of a pool of processes.

    `close` ends the workers, even within a job, and waits for the pool. The wait is needed: the
    pool's thread closes a pipe when it ends, and an interpreter that exits at that moment writes to
    the pipe and prints an OSError. Nothing is cancelled, because the thread fails when it finds a
    cancelled future after a worker is gone.
    """

    def __init__(
        self, work: Callable[[Job], Done], jobs: Iterator[Job], workers: int, options: JobOptions
    ) -> None:
        self._most = workers
        self._options = options
        self._workers: list[BaseProcess] = []
        self._under_way: dict[Future[Done], Job] = {}  # in the order of the jobs
        try:
            self._pool = ProcessPoolExecutor(workers, get_context("spawn"), ignore_signals)
        except (OSError, ImportError, NotImplementedError) as error:
            raise self._no_workers(error) from None
        self._results = self._done(work, jobs, workers * options.ahead)

    def __iter__(self) -> Iterator[Done]:
        return self

    def __next__(self) -> Done:
        return next(self._results)

    def close(self) -> None:
        self._results.close()
        if not all(future.done() for future in self._under_way):
            for worker in self._workers:
                worker.kill()
        self._pool.shutdown(wait=True)

    def _done(self, work: Callable[[Job], Done], jobs: Iterator[Job], most: int) -> Generator[Done]:
        under_way = self._under_way
        while True:
            for job in islice(jobs, max(0, most - len(under_way))):
                under_way[self._submitted(work, job)] = job
            if not under_way:
                return
            # `wait` holds locks of futures, which Ctrl-C within it would leave locked
            with deferring_signals():
                done, _ = wait(under_way, _POLL_S, return_when=FIRST_COMPLETED)
            self._options.watch()
            for future in [one for one in under_way if one in done]:
                job = under_way.pop(future)
                yield self._result(future, job, most)

    def _submitted(self, work: Callable[[Job], Done], job: Job) -> Future[Done]:
        """Submits a job, which may start a worker."""
        seed, settings = self._options.hash_seed, {}
        if seed is not None:
            settings["PYTHONHASHSEED"] = str((seed + len(self._workers)) % MOST_HASH_SEED)
        try:
            with deferring_signals(), environment(**settings):
                future = self._pool.submit(work, job)
        except OSError as error:
            raise self._no_workers(error) from None
        except BrokenProcessPool:
            raise self._lost(job, 1) from None
        self._workers += [one for one in active_children() if one not in self._workers]
        return future

    def _result(self, future: Future[Done], job: Job, open_jobs: int) -> Done:
        try:
            return future.result()
        except BrokenProcessPool:
            raise self._lost(job, open_jobs) from None

    def _lost(self, job: Job, open_jobs: int) -> WorkerLost:
        for worker in self._workers:
            worker.join(_PATIENCE_S)
        return WorkerLost(self._options.lost(job, open_jobs, how_ended(self._workers)))

    def _no_workers(self, error: Exception) -> CallerError:
        reason = getattr(error, "strerror", None) or error
        return CallerError(
            f"--jobs {self._most}: expected that worker processes can be started, found: {reason}; "
            "give --jobs 1"
        )
