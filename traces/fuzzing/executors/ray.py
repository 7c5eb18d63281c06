"""Runs sequences on a Ray cluster (RAY_ADDRESS), or on this machine's cores if there is none.

Every machine needs the same version of this project. Does not define a sequence; see fuzzing/work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

import ray

from ..work import Result
from .base import AHEAD, WorkerLost


def run(work: Callable[[int], Result], seeds: Iterator[int], jobs: int) -> Generator[Result]:
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=True)
    play = ray.remote(_play)
    jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
    under_way: list[Any] = []
    try:
        while True:
            wanted = max(0, jobs * AHEAD - len(under_way))
            under_way += [play.remote(work, seed) for seed in islice(seeds, wanted)]
            if not under_way:
                return
            done, under_way = ray.wait(under_way, num_returns=1)
            yield from _results(done)
    finally:
        for task in under_way:
            ray.cancel(task, force=True)
        ray.shutdown()


def _results(done: list[Any]) -> list[Result]:
    try:
        results: list[Result] = ray.get(done)
    except ray.exceptions.RayError as error:
        message = (str(error).strip().splitlines() or ["no message"])[-1]
        raise WorkerLost(f"a worker of the cluster failed: {message}") from None
    return results


def _play(work: Callable[[int], Result], seed: int) -> Result:
    return work(seed)
