"""Runs sequences on the cores of this machine, in new processes that share nothing.

Each worker has its own hash seed, so that an order that comes from hashing is not the same in all
of a run. The first worker has PYTHONHASHSEED if that is set, else the seed of the first sequence.
Processes beside a worker, in which some of its sequences run again, have the numbers behind its
own (see fuzzing/double_run). Does not define a sequence; see fuzzing/work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess

from hicache.core.errors import CallerError

from ...terminal.workers import (
    cores,
    deferring_signals,
    environment,
    how_ended,
    ignore_signals,
)
from ..double_run import MOST_HASH_SEED, hash_seed
from ..work import Result
from .base import AHEAD, Results, WorkerLost

_POLL_S = 0.2  # how late Ctrl-C may be
_PATIENCE_S = 5.0  # for the exit code of a worker that is gone


def run(work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> Results:
    jobs = jobs or cores()
    if jobs == 1:
        return (work(seed) for seed in seeds)
    return _Workers(work, seeds, jobs)


class _Workers:
    """The results of a pool of processes.

    `close` ends the workers, even within a sequence, and waits for the pool. The wait is needed:
    the pool's thread closes a pipe when it ends, and an interpreter that exits at that moment
    writes to the pipe and prints an OSError. Nothing is cancelled, because the thread fails when
    it finds a cancelled future after a worker is gone.
    """

    def __init__(self, work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> None:
        self._jobs = jobs
        self._workers: list[BaseProcess] = []
        first = list(islice(seeds, 1))
        seeds = chain(first, seeds)
        self._hash_seed = int(hash_seed() or sum(first))
        self._under_way: dict[Future[Result], int] = {}
        try:
            self._pool = ProcessPoolExecutor(jobs, get_context("spawn"), ignore_signals)
        except (OSError, ImportError, NotImplementedError) as error:
            raise self._no_workers(error) from None
        self._results = self._played(work, seeds, jobs * AHEAD)

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        return next(self._results)

    def close(self) -> None:
        self._results.close()
        if not all(future.done() for future in self._under_way):
            for worker in self._workers:
                worker.kill()
        self._pool.shutdown(wait=True)

    def _played(
        self, work: Callable[[int], Result], seeds: Iterator[int], most: int
    ) -> Generator[Result]:
        under_way = self._under_way
        while True:
            for seed in islice(seeds, max(0, most - len(under_way))):
                under_way[self._submitted(work, seed)] = seed
            if not under_way:
                return
            # `wait` holds locks of futures, which Ctrl-C within it would leave locked
            with deferring_signals():
                done, _ = wait(under_way, _POLL_S, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=under_way.__getitem__):
                seed = under_way.pop(future)
                yield self._result(future, seed, most)

    def _submitted(self, work: Callable[[int], Result], seed: int) -> Future[Result]:
        """Submits a sequence, which may start a worker."""
        own = (self._hash_seed + len(self._workers)) % MOST_HASH_SEED
        try:
            with deferring_signals(), environment(PYTHONHASHSEED=str(own)):
                future = self._pool.submit(work, seed)
        except OSError as error:
            raise self._no_workers(error) from None
        except BrokenProcessPool:
            raise self._lost(seed, 1) from None
        self._workers += [one for one in active_children() if one not in self._workers]
        return future

    def _result(self, future: Future[Result], seed: int, open_sequences: int) -> Result:
        try:
            return future.result()
        except BrokenProcessPool:
            raise self._lost(seed, open_sequences) from None

    def _lost(self, seed: int, open_sequences: int) -> WorkerLost:
        for worker in self._workers:
            worker.join(_PATIENCE_S)
        return WorkerLost(
            f"a worker was lost near the sequence of seed {seed}: {how_ended(self._workers)}; to "
            "repeat it in one process, use the same options and "
            f"--seed {seed} --sequences {open_sequences} --jobs 1"
        )

    def _no_workers(self, error: Exception) -> CallerError:
        reason = getattr(error, "strerror", None) or error
        return CallerError(
            f"--jobs {self._jobs}: expected that worker processes can be started, found: {reason}; "
            "give --jobs 1"
        )
