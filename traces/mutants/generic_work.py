"""Hunts generic mutants in worker processes, each within a time limit.

Contains the clocks, the processes, the rounds and the choice of tapes. Does not define options or
output (see commands/mutants and generic_report) or mutants (see invariants/mutants).

    survey   every tape is played once on the unchanged core, to learn which lines it runs, how
             long it takes, and its digest
    rounds   each mutant gets a slice of time on the tapes that run its line; survivors get the
             next, longer slice, except those that are known to be equivalent
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants import ground, mutate, score
from invariants.mutants.ground import Ground
from invariants.mutants.mutate import Mutant

from .limits import TimedHunt, each, time_limit

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus"
RECORDED = CORPUS / "decisions"
SLICES_S = (0.4, 5.0)
LONGEST_S = 20.0
SHORT, LONG = 40, 120  # entries of a drawn tape
EACH = 240  # drawn tapes of each length
VARIED = 5  # take every fifth variation of a tape of the corpus
LINE = 10  # tapes kept for each line of the core and each state


@dataclass(frozen=True)
class Job:
    """One mutant for one slice of time. before: its result in earlier rounds."""

    mutant: Mutant
    seconds: float
    before: TimedHunt | None = None


_grounds: list[Ground] = []


@contextmanager
def surveyed(each: int = EACH) -> Iterator[int]:
    """Surveys the tapes for the block; the core counts its steps. Yields the number of tapes."""
    with mutate.counted():
        kept = list(ground.survey(corpus_tapes()))
        _grounds[:] = [*kept, *ground.chosen(ground.survey(tapes(each)), LINE)]
        yield len(_grounds)
    _grounds.clear()


def corpus_tapes() -> Iterator[Tape]:
    """The tapes that are always played, even if other tapes run the same lines."""
    return (corpus.read(path) for folder in (CORPUS, RECORDED) for path in corpus.paths(folder))


def tapes(each: int) -> Iterator[Tape]:
    """Variations of the corpus with one fault each, and `each` drawn tapes of each length.

    The corpus is left out if `each` is below EACH.
    """
    for tape in map(corpus.read, corpus.paths(CORPUS)) if each >= EACH else ():
        yield from ground.varied(tape, VARIED)
    yield from ground.drawn(range(1, each + 1), SHORT)
    yield from ground.drawn(range(1001, 1001 + each), LONG)


def record(folder: Path = RECORDED) -> list[Path]:
    """Stores the decisions of the current core in the recorded tapes; returns those changed."""
    changed = []
    for path in corpus.paths(folder):
        tape = corpus.read(path)
        _, digest, _ = ground.play(tape, checked=False)
        if tape.notes.get(ground.NOTE) != digest:
            changed.append(corpus.add(folder, ground.noted(tape, decisions=digest)))
            path.unlink()
    return changed


def run(mutants: Sequence[Mutant], seconds: float, processes: int) -> Iterator[TimedHunt]:
    """Yields the result of each mutant as it is known. Call it inside `surveyed`."""
    jobs = [Job(one, 0.0) for one in mutants]
    seconds, reviewed = min(seconds, LONGEST_S), score.equivalent()
    slices = [limit for limit in SLICES_S if limit < seconds] + [seconds]
    for slice_s in slices:
        survivors: list[Job] = []
        for job, done in each(work, [replace(job, seconds=slice_s) for job in jobs], processes):
            if done.hunt.killed or slice_s == slices[-1] or job.mutant.name in reviewed:
                yield done
            else:
                survivors.append(replace(job, before=done))
        jobs = survivors


def work(job: Job) -> tuple[Job, TimedHunt]:
    """Hunts one mutant in this process."""
    began = time.monotonic()
    earlier = job.before

    def more() -> bool:
        return time.monotonic() - began < job.seconds

    skip = earlier.hunt.sequences if earlier is not None else 0
    hunt = score.hunt(job.mutant, _grounds, more, time_limit, skip)
    seconds = time.monotonic() - began
    if earlier is not None:
        hunt = replace(
            hunt,
            operations=hunt.operations + earlier.hunt.operations,
            sequences=hunt.sequences + earlier.hunt.sequences,
            differs=hunt.differs or earlier.hunt.differs,
        )
        seconds += earlier.seconds
    return job, TimedHunt(hunt, seconds)
