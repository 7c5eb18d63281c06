"""Hunting planted bugs in worker processes, each within its time.

Lives here: clocks, wall limits, the pool, one hunt as a job. Must not live here: options and words
(mutants_command), generic mutants (generic_work), or what a bug is (invariants).
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from invariants.base import check_names
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import replay
from invariants.fuzz.score import Hunt
from invariants.fuzz.steps import Endless
from invariants.planted import kill
from invariants.planted.base import load as load_planted
from invariants.planted.base import planted

from .alarm import alarm

SEQUENCE_S = 10.0  # many times what the longest sequence takes: then it is endless
MEMORY = 4 << 30
SEEDS = range(1, 1_000_000)
FIRST_S = 1.0


@dataclass(frozen=True)
class Killed:
    """One row of the matrix. checks: those that notice the failing sequence when asked alone; ""
    stands for what always looks: the core's asserts, the content, the end."""

    hunt: Hunt
    seconds: float
    rows: tuple[str, ...] = ()
    title: str = ""
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One planted bug."""

    name: str
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
    short = [Job(one.name, min(FIRST_S, one.seconds), one.operations) for one in jobs]
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

    return _planted(job, more, began)


def _planted(job: Job, more: Callable[[], bool], began: float) -> Killed:
    name = job.name
    bug = load_planted(name)
    rows, title = tuple(bug.ROWS), bug.TITLE
    seeds = itertools.takewhile(lambda _: more(), SEEDS)
    try:
        with limited(job.seconds + SEQUENCE_S):
            found = kill.hunt(name, seeds, job.operations)
    except Endless:
        ended = Hunt(name, 14, "ENDLESS", 0, 0, differs=True)
        return Killed(ended, time.monotonic() - began, rows, title)
    code, kind = found.found or (0, "")
    seconds = time.monotonic() - began
    went = Hunt(name, code, kind, found.operations, found.sequences, found.seed)
    return Killed(went, seconds, rows, title, _who(name, found))


def _who(name: str, found: kill.Hunt) -> tuple[str, ...]:
    """Every check that would have noticed the failing tape, alone."""
    if found.tape is None:
        return ()
    tape, ops, noticed = found.tape, load(), []
    with planted(name):
        if replay(tape, ops, level="off").failure is not None:
            noticed.append("")
        for check in check_names():
            failure = replay(tape, ops, checks=(check,)).failure
            if failure is not None and failure.code not in (10, 12, 14):
                noticed.append(check)
    return tuple(noticed)


def limited(seconds: float = SEQUENCE_S) -> AbstractContextManager[None]:
    """Raises Endless into a block that takes longer."""
    return alarm(seconds, Endless(f"more than {seconds:.0f} s"))


def bounded() -> None:
    """Of a worker: what eats memory without end crashes instead; Ctrl-C is the parent's to take."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
