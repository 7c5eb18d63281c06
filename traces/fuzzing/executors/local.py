"""The cores of this machine: one process each, fresh ones, so that nothing is shared.

Must not live here: what a sequence is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context

from traces.terminal.workers import leave_signals_to_the_parent

from ..work import Result
from .base import AHEAD, WorkerLost


def run(work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> Iterator[Result]:
    jobs = jobs or len(os.sched_getaffinity(0))
    if jobs == 1:
        yield from map(work, seeds)
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), leave_signals_to_the_parent)
    try:
        under_way: dict[Future[Result], int] = {}
        while True:
            for seed in islice(seeds, max(0, jobs * AHEAD - len(under_way))):
                under_way[pool.submit(work, seed)] = seed
            if not under_way:
                return
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for one in sorted(done, key=under_way.__getitem__):
                seed = under_way.pop(one)
                yield _result(one, seed, jobs * AHEAD)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(one: Future[Result], seed: int, open_: int) -> Result:
    try:
        return one.result()
    except BrokenProcessPool:
        raise WorkerLost(
            f"a worker died near the sequence of seed {seed}: out of memory, or killed; to repeat "
            f"it, use the same options and --seed {seed} --sequences {open_} --jobs 1"
        ) from None
