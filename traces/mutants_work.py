"""Hunting generic mutants in worker processes, each within its time.

Lives here: clocks, wall limits, the pool, one hunt as a job. Must not live here: options and words
(mutants_command), planted bugs (planted_work), or what a mutant is (invariants).
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from invariants.fuzz.mutate import Mutant
from invariants.fuzz.score import Endless, Hunt, hunt

from .alarm import alarm

SEQUENCE_S = 10.0  # many times what the longest sequence takes: then it is endless
MEMORY = 4 << 30
SEEDS = range(1, 1_000_000)
FIRST_S = 1.0


@dataclass(frozen=True)
class Killed:
    """What became of a mutant."""

    hunt: Hunt
    seconds: float


@dataclass(frozen=True)
class Job:
    name: str
    mutant: Mutant
    seconds: float
    operations: int


def run(jobs: Sequence[Job], processes: int) -> Iterator[Killed]:
    """The jobs, as they are done: a slice each first, the whole time for those that survive it."""
    if processes <= 1:
        yield from _rounds(jobs, lambda some: map(work, some))
        return
    with multiprocessing.get_context("fork").Pool(processes, bounded) as pool:
        yield from _rounds(jobs, lambda some: pool.imap_unordered(work, some))


def _rounds(jobs: Sequence[Job], each: Callable[[list[Job]], Iterator[Killed]]) -> Iterator[Killed]:
    by_name = {job.name: job for job in jobs}
    again: list[Job] = []
    short = [Job(one.name, one.mutant, min(FIRST_S, one.seconds), one.operations) for one in jobs]
    for done in each(short):
        job = by_name[done.hunt.name]
        if done.hunt.killed or job.seconds <= FIRST_S:
            yield done
        else:
            again.append(job)
    yield from each(again)


def work(job: Job) -> Killed:
    """One hunt, here and now."""
    began = time.monotonic()

    def more() -> bool:
        return time.monotonic() - began < job.seconds

    found = hunt(job.mutant, SEEDS, job.operations, more, limited)
    return Killed(found, time.monotonic() - began)


def limited(seconds: float = SEQUENCE_S) -> AbstractContextManager[None]:
    """Raises Endless into a block that takes longer."""
    return alarm(seconds, Endless(f"more than {seconds:.0f} s"))


def bounded() -> None:
    """Of a worker: what eats memory without end crashes instead; Ctrl-C is the parent's to take."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
