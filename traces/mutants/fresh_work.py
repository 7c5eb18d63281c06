"""Hunts drawn bugs in worker processes, each for a number of seconds of processor time.

Contains the clocks, the processes and the tapes. Does not define options or output (see
commands/mutants and fresh_report), or draw and judge bugs (see invariants/fresh).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from invariants.fresh import judging, triage
from invariants.fresh.judging import Verdict
from invariants.fresh.planting import Bug
from invariants.fresh.triage import Traces
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants import sources

from . import stored
from .limits import each, time_limit

SEQUENCE_S = 120.0  # of the clock; a sequence that never ends is found by its steps long before
COMPARED = 60  # drawn sequences on which a survivor's decisions are compared


@dataclass(frozen=True)
class Job:
    """seed: of the set. budget_s: processor time until the bug counts as surviving."""

    bug: Bug
    seed: int
    budget_s: float


@dataclass(frozen=True)
class Row:
    """The result of one hunt. seconds: of processor time, until the kill or in all. traces: what a
    survivor does; None for a bug that was killed.
    """

    bug: Bug
    verdict: Verdict
    seconds: float
    traces: Traces | None = None


_tapes: list[Tape] = []


def run(jobs: Sequence[Job], processes: int) -> Iterator[Row]:
    """Yields each result as it is known."""
    _tapes[:] = sorted(stored.corpus_tapes(), key=lambda tape: len(tape.entries))
    with sources.counted():
        yield from each(work, jobs, processes)


def work(job: Job) -> Row:
    """Hunts one bug in this process."""
    began = time.process_time()

    def more() -> bool:
        return time.process_time() - began < job.budget_s

    bug, limit = job.bug, partial(time_limit, SEQUENCE_S)
    verdict = judging.hunt(bug, _tapes, judging.seeds(job.seed, bug.number), more, limit)
    seconds = time.process_time() - began
    if verdict.killed:
        return Row(bug, verdict, seconds)
    tapes = triage.drawn_tapes(judging.seeds(job.seed, bug.number), COMPARED)
    return Row(bug, verdict, seconds, triage.traces(bug, (*_tapes, *tapes), limit))
