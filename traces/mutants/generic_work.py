"""Hunting generic mutants in worker processes, each within its time.

Lives here: clocks, the pool, the rounds, which tapes are hunted on. Must not live here: options and
words (generic_report, commands/mutants), or what a mutant is (invariants).

    survey   every tape is played once on the plain core: what it runs, how long it is, its digest
    rounds   each mutant gets a slice of time on the tapes that run its line; those that survive it
             get the next, longer one, but for those that are known to be equivalent
    record   what survives them all is played on the recorded tapes, whose decisions CI holds
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hicache.core.errors import CallerError
from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants import ground, mutate, score
from invariants.mutants.ground import Ground
from invariants.mutants.mutate import Mutant

from .limits import Killed, bounded, limited

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus"
RECORDED = CORPUS / "decisions"
SLICES_S = (0.4, 5.0)
LONGEST_S = 20.0
SHORT, LONG = 40, 120  # entries of a drawn tape
EACH = 240  # tapes of either length
VARIED = 5  # every so many of the ways in which a tape of the corpus can go wrong
LINE = 10  # tapes that are kept for each line


@dataclass(frozen=True)
class Job:
    mutant: Mutant
    seconds: float
    before: Killed | None = None


_grounds: list[Ground] = []
_recorded: list[Ground] = []


@contextmanager
def surveyed(each: int = EACH) -> Iterator[int]:
    """The tapes to hunt on are known, and the core counts its steps, until the block ends."""
    with mutate.counted():
        kept = list(ground.survey(corpus_tapes()))
        _grounds[:] = [*kept, *ground.chosen(ground.survey(tapes(each)), LINE)]
        _recorded[:] = as_recorded(RECORDED)
        yield len(_grounds)
    _grounds.clear()
    _recorded.clear()


def corpus_tapes() -> Iterator[Tape]:
    """Those that are hunted on whatever else runs the same lines."""
    return (corpus.read(path) for folder in (CORPUS, RECORDED) for path in corpus.paths(folder))


def tapes(each: int) -> Iterator[Tape]:
    """All that can go wrong in the tapes of the corpus, and so many drawn of each length."""
    for tape in map(corpus.read, corpus.paths(CORPUS)) if each >= EACH else ():
        yield from ground.varied(tape, VARIED)
    yield from ground.drawn(range(1, each + 1), SHORT)
    yield from ground.drawn(range(1001, 1001 + each), LONG)


def as_recorded(folder: Path) -> list[Ground]:
    """The recorded tapes. Raises CallerError where the plain core decides otherwise: every mutant
    would seem to be seen by it."""
    found = list(ground.survey(map(corpus.read, corpus.paths(folder))))
    stale = [one.tape.seed for one in found if one.tape.notes.get(ground.NOTE) != one.digest]
    if stale:
        raise CallerError(
            f"{folder}: expected tapes on which the core decides as recorded, found {len(stale)} "
            f"of {len(found)} on which it does not (first: seed {stale[0]}); if this change "
            f"is intended, run hicache mutants --record"
        )
    return found


def record(folder: Path = RECORDED) -> list[Path]:
    """The recorded tapes decide as this core does from now on. Returns those that are new."""
    changed = []
    for path in corpus.paths(folder):
        tape = corpus.read(path)
        _, digest, _ = ground.play(tape, checked=False)
        if tape.notes.get(ground.NOTE) != digest:
            changed.append(corpus.add(folder, ground.noted(tape, decisions=digest)))
            path.unlink()
    return changed


def run(mutants: Sequence[Mutant], seconds: float, processes: int) -> Iterator[Killed]:
    """The mutants, as they are done. Inside `surveyed`."""
    jobs = [Job(one, 0.0) for one in mutants]
    if processes <= 1:
        yield from _rounds(jobs, seconds, lambda some: map(work, some))
        return
    with multiprocessing.get_context("fork").Pool(processes, bounded) as pool:
        yield from _rounds(jobs, seconds, lambda some: pool.imap_unordered(work, some))


def _rounds(
    jobs: list[Job], seconds: float, each: Callable[[list[Job]], Iterator[tuple[Job, Killed]]]
) -> Iterator[Killed]:
    seconds, reviewed = min(seconds, LONGEST_S), score.equivalent()
    slices = [one for one in SLICES_S if one < seconds] + [seconds]
    for turn in slices:
        again: list[Job] = []
        for job, done in each([replace(job, seconds=turn) for job in jobs]):
            if done.hunt.killed or turn == slices[-1] or job.mutant.name in reviewed:
                yield done
            else:
                again.append(replace(job, before=done))
        jobs = again


def work(job: Job) -> tuple[Job, Killed]:
    """One hunt, here and now."""
    began = time.monotonic()
    before = job.before

    def more() -> bool:
        return time.monotonic() - began < job.seconds

    skip = before.hunt.sequences if before is not None else 0
    found = score.hunt(job.mutant, _grounds, more, limited, skip)
    seconds = time.monotonic() - began
    if before is not None:
        found = replace(
            found,
            operations=found.operations + before.hunt.operations,
            sequences=found.sequences + before.hunt.sequences,
            differs=found.differs or before.hunt.differs,
        )
        seconds += before.seconds
    if not found.killed:
        found = replace(found, decisions=score.decides(job.mutant, _recorded, limited))
    return job, Killed(found, seconds)
