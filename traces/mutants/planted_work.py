"""Hunting planted bugs in worker processes: who kills each, how small, which fault shows it.

Lives here: clocks, the pool, one hunt as a job. Must not live here: options and words
(planted_report, commands/mutants), or what a bug is (invariants).

    rounds   each bug gets a slice of time, and those that survive it the whole; all times are those
             of one core, so that others on the machine do not count
    matrix   the tape that failed is shrunk, if wanted; on it, every check is asked alone; where one
             alone notices it, the others are asked for more sequences
    trials   a bug that a kind of fault exposes: with that kind alone, and in calm sequences
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from invariants.base import LIVENESS, check_names
from invariants.fuzz import shrink as shrinker
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import Outcome, replay
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants.steps import Endless
from invariants.planted import _exposed as exposed
from invariants.planted import _kill as kill
from invariants.planted.base import load as bug_of
from invariants.planted.base import planted

from .limits import SEQUENCE_S, bounded, limited

SEEDS = range(1, 1_000_000)
FIRST_S = 1.0
MORE = 20  # sequences
SHRINK_S = 60.0
SLOWER = 10  # times that a hunt may take longer than the time of a core that it has
CALM_OPERATIONS = 60

Job = TypeVar("Job")
Done = TypeVar("Done")


@dataclass(frozen=True)
class BugJob:
    """operations: entries of a sequence. shrink: whether the tape that failed is made small."""

    name: str
    seconds: float
    operations: int
    shrink: bool = False


@dataclass(frozen=True)
class Small:
    """Entries of a tape before it was shrunk and after, the plays and the time that it took; whole:
    nothing could be made smaller any more."""

    before: int
    after: int
    plays: int
    seconds: float
    whole: bool


@dataclass(frozen=True)
class Others:
    """What all but the only check that noticed a tape came to, asked for the same bug in so many
    sequences: what noticed it, or "" for nobody."""

    check: str
    sequences: int


@dataclass(frozen=True)
class Row:
    """One row of the matrix. noticed: who notices the failing tape when asked alone, `kill.ALWAYS`
    for what always looks. seconds: until it was killed, or all that it had. others: where a check
    was alone in noticing."""

    name: str
    code: int
    check: str
    operations: int
    sequences: int
    seed: int
    seconds: float
    noticed: tuple[str, ...] = ()
    small: Small | None = None
    others: Others | None = None

    @property
    def killed(self) -> bool:
        return self.code != 0


@dataclass(frozen=True)
class TrialJob:
    """fault: one kind, or "" for calm sequences; so many of them at most."""

    name: str
    fault: str
    sequences: int


@dataclass(frozen=True)
class Trial:
    """What became of a bug with one kind of fault, or none. as_said: it was seen, or was not."""

    name: str
    fault: str
    code: int
    check: str
    sequences: int
    operations: int
    seconds: float

    @property
    def as_said(self) -> bool:
        return bool(self.fault) == (self.code != 0)


def each(work: Callable[[Job], Done], jobs: Sequence[Job], processes: int) -> Iterator[Done]:
    """The jobs, as they are done."""
    if processes <= 1 or len(jobs) <= 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("fork").Pool(min(processes, len(jobs)), bounded) as pool:
        yield from pool.imap_unordered(work, jobs)


def run(jobs: Sequence[BugJob], processes: int) -> Iterator[Row]:
    """A slice each first, the whole time for those that survive it."""
    again: list[BugJob] = []
    by_name = {job.name: job for job in jobs}
    first = [replace(job, seconds=min(FIRST_S, job.seconds)) for job in jobs]
    for row in each(work, first, processes):
        job = by_name[row.name]
        if row.killed or job.seconds <= FIRST_S:
            yield row
        else:
            again.append(job)
    yield from each(work, again, processes)


def work(job: BugJob) -> Row:
    """One hunt, here and now."""
    began = time.process_time()
    seeds = itertools.takewhile(lambda _: time.process_time() - began < job.seconds, SEEDS)
    try:
        with limited(SLOWER * job.seconds + SEQUENCE_S):
            found = kill.hunt(job.name, seeds, job.operations)
    except Endless:
        return Row(job.name, LIVENESS, "ENDLESS", 0, 0, -1, time.process_time() - began)
    seconds = time.process_time() - began
    code, kind = found.found or (0, "")
    row = Row(job.name, code, kind, found.operations, found.sequences, found.seed, seconds)
    if found.tape is None:
        return row
    tape = found.tape
    if job.shrink:
        tape, small = _small(job.name, tape)
        row = replace(row, small=small)
    row = replace(row, noticed=kill.noticers(job.name, tape))
    return replace(row, others=_others(row))


def _others(row: Row) -> Others | None:
    """The sequences from the first on, and some behind the one in which the check noticed it."""
    if len(row.noticed) != 1 or row.noticed[0] not in check_names():
        return None
    asked = [name for name in check_names() if name != row.noticed[0]]
    seeds = SEEDS[: row.sequences + MORE]
    try:
        with limited(SLOWER * len(seeds) + SEQUENCE_S):
            found = kill.hunt(row.name, seeds, checks=asked)
    except Endless:
        return Others("ENDLESS", 0)
    return Others(found.found[1] if found.found else "", found.sequences)


def _small(name: str, tape: Tape) -> tuple[Tape, Small | None]:
    """Shrunk for a minute at most: what is tried later counts as no failure."""
    ops = load()
    with planted(name):
        failed = replay(tape, ops)
        if failed.failure is None:
            return tape, None
        began = time.process_time()
        late: list[bool] = []

        def play(one: Tape) -> Outcome:
            if time.process_time() - began < SHRINK_S:
                return replay(one, ops)
            late.append(True)
            return replace(failed, failure=None)

        found = shrinker.shrink(tape, failed.failure, play)
    whole = found.whole and not late
    spent = time.process_time() - began
    return found.tape, Small(len(tape.entries), len(found.tape.entries), found.plays, spent, whole)


def trial_jobs(names: Sequence[str], sequences: int) -> list[TrialJob]:
    """Of each of these bugs that says which kinds of faults expose it: those, and none."""
    return [
        TrialJob(name, fault, sequences)
        for name in names
        for fault in ("", *getattr(bug_of(name), "FAULTS", ()))
        if getattr(bug_of(name), "FAULTS", ())
    ]


def attempt(job: TrialJob) -> Trial:
    """One trial, here and now."""
    began = time.process_time()
    found = exposed.hunt(job.name, job.fault, range(job.sequences), CALM_OPERATIONS)
    code, kind = found.found or (0, "")
    spent = time.process_time() - began
    return Trial(job.name, job.fault, code, kind, found.sequences, found.operations, spent)
