"""Hunts planted bugs in worker processes: which check kills each, how small, with which fault.

Contains the processes and the single hunts. Does not define options or output (see
commands/mutants and planted_report) or bugs (see invariants/planted).

    rounds   each bug gets some events, and survivors get all of them. Events are counted, so the
             speed and the load of the machine do not matter; seconds are told beside them.
    matrix   the failing tape is shrunk if wanted, and played with the checks alone and with the
             specification alone
    trials   a bug that a kind of fault exposes: once with that kind alone, once without faults
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from invariants.base import LIVENESS
from invariants.fuzz import shrink as shrinker
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import Failure, Outcome, replay
from invariants.fuzz.tapes import tape as tapes
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants.sources import Endless
from invariants.planted import _exposed as exposed
from invariants.planted import _kill as kill
from invariants.planted.base import load as bug_of
from invariants.planted.base import planted

from ..fuzzing.work import Work
from .limits import SEQUENCE_S, each, time_limit

SEEDS = range(1, 1_000_000)
FIRST = 4_000  # events
PER_EVENT_S = 0.01  # far more than one takes on a busy machine; a longer hunt counts as endless
SHRINK_S = 60.0
CALM_OPERATIONS = 60


@dataclass(frozen=True)
class BugJob:
    """events: after so many the bug has survived. operations: entries of a sequence. shrink:
    whether to shrink the failing tape."""

    name: str
    events: int
    operations: int
    shrink: bool = False


@dataclass(frozen=True)
class Small:
    """A shrunk tape: entries before and after, plays, processor seconds.

    whole: no further change made it smaller; False if the time ran out.
    """

    before: int
    after: int
    plays: int
    seconds: float
    whole: bool


@dataclass(frozen=True)
class Row:
    """One row of the matrix.

    events: until the kill, or all that were played. seconds: that this took. by_checks,
    by_specification: whether the checks, and the specification, notice the failing tape alone.
    """

    name: str
    code: int
    check: str
    events: int
    sequences: int
    seed: int
    seconds: float
    small: Small | None = None
    by_checks: bool = False
    by_specification: bool = False

    @property
    def killed(self) -> bool:
        return self.code != 0


@dataclass(frozen=True)
class TrialJob:
    """fault: one kind, or "" for sequences without faults. sequences: the most to play."""

    name: str
    fault: str
    sequences: int


@dataclass(frozen=True)
class Trial:
    """The result of a bug with one kind of fault, or without faults."""

    name: str
    fault: str
    code: int
    check: str
    sequences: int
    operations: int
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether it was found with the fault, or not found without faults."""
        return bool(self.fault) == (self.code != 0)


def run(jobs: Sequence[BugJob], processes: int) -> Iterator[Row]:
    """First some events for each bug, then all of them for those that survive."""
    survivors: list[BugJob] = []
    by_name = {job.name: job for job in jobs}
    first = [replace(job, events=min(FIRST, job.events)) for job in jobs]
    for row in each(work, first, processes):
        job = by_name[row.name]
        if row.killed or job.events <= FIRST:
            yield row
        else:
            survivors.append(job)
    yield from each(work, survivors, processes)


def work(job: BugJob) -> Row:
    """Hunts one bug in this process."""
    began = time.process_time()
    try:
        with time_limit(PER_EVENT_S * job.events + SEQUENCE_S):
            hunted = _hunt_twice if bug_of(job.name).hashed else kill.hunt
            hunt = hunted(job.name, SEEDS, job.operations, most_events=job.events)
    except Endless:
        return Row(job.name, LIVENESS, "ENDLESS", 0, 0, -1, time.process_time() - began)
    seconds = time.process_time() - began
    code, kind = hunt.found or (0, "")
    row = Row(job.name, code, kind, hunt.operations, hunt.sequences, hunt.seed, seconds)
    if hunt.tape is None:
        return row
    tape = hunt.tape
    if job.shrink:
        tape, small = _small(job.name, tape)
        row = replace(row, small=small)
    checks = kill.noticed(job.name, tape, "every", against=False)
    specification = kill.noticed(job.name, tape, "off", against=True)
    return replace(row, by_checks=checks, by_specification=specification)


def _hunt_twice(name: str, seeds: Iterable[int], operations: int, most_events: int) -> kill.Hunt:
    """Hunts with sequences that are also played in a process with another hash seed."""
    play = Work(operations, twice=100, plant=name)
    events = count = 0
    for seed in seeds:
        result = play(seed)
        events, count, found = events + result.events, count + 1, result.failure
        if found is not None:
            failure = Failure(found.code, found.kind, found.text, found.at)
            return kill.Hunt(name, failure, events, count, seed, tapes.loads(found.tape))
        if events >= most_events:
            break
    return kill.Hunt(name, None, events, count)


def _small(name: str, tape: Tape) -> tuple[Tape, Small | None]:
    """The tape shrunk within SHRINK_S. After that time a play counts as no failure."""
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

        shrunk = shrinker.shrink(tape, failed.failure, play)
    whole = shrunk.whole and not late
    spent = time.process_time() - began
    after = len(shrunk.tape.entries)
    return shrunk.tape, Small(len(tape.entries), after, shrunk.plays, spent, whole)


def trial_jobs(names: Sequence[str], sequences: int) -> list[TrialJob]:
    """For each bug that names kinds of faults: one trial for each kind, and one without."""
    return [
        TrialJob(name, fault, sequences)
        for name in names
        for fault in ("", *bug_of(name).faults)
        if bug_of(name).faults
    ]


def attempt(job: TrialJob) -> Trial:
    """Runs one trial in this process."""
    began = time.process_time()
    hunt = exposed.hunt(job.name, job.fault, range(job.sequences), CALM_OPERATIONS)
    code, kind = hunt.found or (0, "")
    spent = time.process_time() - began
    return Trial(job.name, job.fault, code, kind, hunt.sequences, hunt.operations, spent)
