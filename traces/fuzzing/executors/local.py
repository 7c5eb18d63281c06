"""Runs sequences on the cores of this machine, in new processes that share nothing.

Does not define a sequence; see fuzzing/work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context

from traces.terminal.workers import ignore_signals

from ..work import Result
from .base import AHEAD, Results, WorkerLost


def run(work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> Results:
    jobs = jobs or len(os.sched_getaffinity(0))
    if jobs == 1:
        return (work(seed) for seed in seeds)
    return _Workers(work, seeds, jobs)


class _Workers:
    """The results of a pool of processes.

    An exception, also Ctrl-C, cancels what has not started; only `close` waits for the rest. The
    wait is needed: the pool's thread closes a pipe when it ends, and an interpreter that exits at
    that moment writes to the pipe and prints an OSError.
    """

    def __init__(self, work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> None:
        self._pool = ProcessPoolExecutor(jobs, get_context("spawn"), ignore_signals)
        self._results = self._played(work, seeds, jobs * AHEAD)

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        return next(self._results)

    def close(self) -> None:
        self._results.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _played(
        self, work: Callable[[int], Result], seeds: Iterator[int], most: int
    ) -> Generator[Result]:
        under_way: dict[Future[Result], int] = {}
        try:
            while True:
                for seed in islice(seeds, max(0, most - len(under_way))):
                    under_way[self._pool.submit(work, seed)] = seed
                if not under_way:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=under_way.__getitem__):
                    seed = under_way.pop(future)
                    yield _result(future, seed, most)
        finally:
            for future in under_way:
                future.cancel()


def _result(future: Future[Result], seed: int, open_sequences: int) -> Result:
    try:
        return future.result()
    except BrokenProcessPool:
        raise WorkerLost(
            f"a worker died near the sequence of seed {seed}: out of memory, or killed; to repeat "
            f"it, use the same options and --seed {seed} --sequences {open_sequences} --jobs 1"
        ) from None
