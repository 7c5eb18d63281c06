"""The parts of a run: which sequences each job plays, and how their results arrive.

Each family gets its parts one after the other, so that a worker builds few models. Does not play
sequences (see work) or print (see report).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ..executors import base as executors
from ..fuzzing.files import Files
from ..fuzzing.report import Tally
from ..fuzzing.work import Result
from ..terminal.progress import counting
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import print_error
from .work import Part, Proved, Proving, added

# Of a part, so that something is seen of a long run.
MOST_REQUESTS, MOST_PASSES = 200, 2000
NOT_JUDGED = 17  # the exit code if a family jumped so often that its logits say too little
STRIDE = 1_000_000  # between the first seeds of the parts of a family


class Amount(NamedTuple):
    """How much is wanted of each family: both."""

    requests: int
    passes: int


@dataclass
class Sum:
    """Results so far. families: in the order of the command. files: tapes of failures."""

    families: dict[str, Proved]
    files: Files
    failures: Tally = field(default_factory=Tally)
    seconds: float = 0.0
    code: int = 0
    interrupted: bool = False
    error: Exception | None = None  # what ended the run before all was done, other than Ctrl-C

    def add(self, found: Proved) -> None:
        self.families[found.family] = added(self.families[found.family], found)
        for seed, failure in found.failures:
            result = Result(seed, 0, 0, 0, failure=failure)
            kept = self.failures.add(result, self.seconds)
            if kept is not None:
                self.files.keep(kept, self.failures)

    @property
    def complete(self) -> bool:
        return not self.interrupted and self.error is None


def parts(
    families: Sequence[str], seed: int, amount: Amount, seconds: int | None, workers: int
) -> Iterator[Part]:
    """The jobs. With seconds, every family in turn until the time is over; else so much of
    each."""
    if seconds is not None:
        yield from _until(families, seed, time.monotonic() + seconds, seconds, workers)
        return
    count = max(
        1 if len(families) > workers else workers,
        -(-amount.requests // MOST_REQUESTS),
        -(-amount.passes // MOST_PASSES),
    )
    requests, passes = -(-amount.requests // count), -(-amount.passes // count)
    for family in families:
        for turn in range(count):
            yield Part(family, seed + turn * STRIDE, requests, passes)


def _until(
    families: Sequence[str], seed: int, end: float, seconds: int, workers: int
) -> Iterator[Part]:
    """Parts of every family in turn, each as long as its share of the time."""
    share = seconds * min(workers, len(families)) / len(families)
    for turn in count():
        for family in families:
            if time.monotonic() >= end:
                return
            until = min(end, time.monotonic() + share)
            yield Part(family, seed + turn * STRIDE, MOST_REQUESTS, until=until)


def prove(work: Proving, jobs: Iterator[Part], workers: int, total: Sum) -> None:
    """Plays all parts, and adds what they found. Ctrl-C and errors keep what is done."""
    begun = time.monotonic()
    options = executors.JobOptions(_lost, ahead=1)
    run = executors.load(executors.LOCAL).run
    with counting("prove", "passes") as shown:
        try:
            with closing(run(work, jobs, workers, options)) as results:
                for result in results:
                    total.seconds = time.monotonic() - begun
                    total.add(result)
                    shown(sum(one.paths["passes"] for one in total.families.values()))
        except KeyboardInterrupt:
            total.interrupted = True
            print_error("interrupted; what was proved so far:")
        except Exception as error:  # what is done is shown before it is raised again
            total.error = error
    total.seconds = time.monotonic() - begun
    total.files.restore_missing(total.failures)
    judged = all(one.judged for one in total.families.values())
    stopped = INTERRUPTED if total.interrupted else 0
    total.code = total.failures.code() or stopped or (0 if judged else NOT_JUDGED)


def _lost(part: Part, open_parts: int, how_ended: str) -> str:
    return executors.lost_within(f"family {part.family}, seed {part.seed}", open_parts, how_ended)
