"""Plays the sequences of one family, as a job of a worker.

Does not choose families and seeds (see jobs), or know what a model is (see invariants/prove, which
is loaded when the first sequence is played).
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from invariants.against import AGAINST, SPEC
from invariants.fuzz import play
from invariants.fuzz.executors import ModelSettings, models
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops import base as operations
from invariants.fuzz.swarm import Swarm
from invariants.watch import Level

from ..fuzzing.planting import planted
from ..fuzzing.work import FoundFailure, Work
from ..terminal.text import command_line

OPERATIONS = 80  # of a sequence
LIMIT_S = 300.0  # of a sequence: a model that jumps is judged by many cold runs
MOST_FAILURES = 3  # of one job, which ends then
_NONE = ModelSettings("")
# Of a family: percent of the comparisons that may jump, and requests with jumps that always may.
MOST_JUMPED, FEW_JUMPED = 2, 5
HEALED = "tombstone healed"  # the name of a state of the fuzzer


class Part(NamedTuple):
    """A job: sequences of a family from a seed on, until so many requests have had a pass and so
    many passes were compared, or the clock shows `until` (`time.monotonic`; 0 for no end)."""

    family: str
    seed: int
    requests: int
    passes: int = 0
    until: float = 0


@dataclass(frozen=True)
class Proved:
    """The result of a part. paths: what requests reused and how, and passes, by name (see
    `ModelHand`). bounds: the largest difference in bounds; difference and bound: of that
    comparison. unstable: the largest difference that an unstable model explains."""

    family: str
    sequences: int = 0
    requests: int = 0
    events: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    difference: float = 0.0
    bounds: float = 0.0
    bound: float = 0.0
    unstable: float = 0.0
    busy_ns: int = 0
    failures: tuple[tuple[int, FoundFailure], ...] = ()

    @property
    def judged(self) -> bool:
        """Whether so little jumped that it can be taken for the model's own. A request that has
        jumped goes on from there, so requests count, too."""
        share = 100 * self.paths["unstable"]
        few = self.paths["unstable requests"] <= FEW_JUMPED
        return few or share <= MOST_JUMPED * self.paths["passes"]


@dataclass(frozen=True)
class FamilyWork(Work):
    """One sequence of a family."""

    model: ModelSettings = _NONE
    faults: bool = False
    limit_s: float = LIMIT_S

    def swarm(self, seed: int) -> Swarm:
        found: Swarm = models().drawn(self.model, seed, weights_of(operations.load()), self.faults)
        return found

    def command(self, seed: int, sequences: int = 1) -> str:
        """The command that plays the sequence of this seed first."""
        words = ["hicache", "prove", "--family", self.model.family, "--seed", str(seed)]
        words += ["--requests", str(sequences)]
        words += ["--faults"] if self.faults else []
        words += ["--dtype", self.model.dtype] if self.model.dtype != "fp32" else []
        words += ["--attention", self.model.attention] if self.model.attention != "eager" else []
        words += ["--check", self.level] if self.level != "every" else []
        words += ["--plant", self.plant] if self.plant else []
        return command_line(words)


@dataclass(frozen=True)
class Proving:
    """Everything that a worker needs except the part. A call plays one part."""

    dtype: str
    attention: str
    faults: bool
    level: Level
    folder: str
    plant: str = ""

    def __call__(self, part: Part) -> Proved:
        work = FamilyWork(
            OPERATIONS,
            level=self.level,
            folder=self.folder,
            plant=self.plant,
            against=SPEC if self.level == "every" else AGAINST[-1],
            model=ModelSettings(part.family, self.dtype, self.attention),
            faults=self.faults,
        )
        found = Proved(part.family)
        for seed in count(part.seed):
            found = added(found, _played(work, seed))
            late = part.until and time.monotonic() >= part.until
            enough = found.requests >= part.requests and found.paths["passes"] >= part.passes
            if late or enough or len(found.failures) >= MOST_FAILURES:
                return found
        raise AssertionError("seeds do not end")


def _played(work: FamilyWork, seed: int) -> Proved:
    """The result of one sequence. What is planted is there for the sequence alone."""
    begun = time.process_time_ns()
    ops = operations.load()
    with planted(work.plant), work.time_limit():
        outcome = play.generate(
            work.swarm(seed),
            ops,
            seed,
            work.operations,
            work.level,
            None,
            work.command(seed),
            work.compares,
        )
    outcome = replace(outcome, tape=work.with_note(outcome.tape))
    failure = work.judge(outcome) if outcome.failure else None
    figures = models().figures(outcome.hand)
    return Proved(
        work.model.family,
        1,
        figures.requests,
        outcome.hand.events,
        figures.paths + Counter(healed=outcome.hand.probes.seen[HEALED]),
        figures.difference,
        figures.bounds,
        figures.bound,
        figures.unstable,
        time.process_time_ns() - begun,
        ((seed, failure),) if failure else (),
    )


def added(one: Proved, other: Proved) -> Proved:
    """The sums of two results of one family."""
    worst = max(one, other, key=lambda found: found.bounds)
    return Proved(
        one.family,
        one.sequences + other.sequences,
        one.requests + other.requests,
        one.events + other.events,
        one.paths + other.paths,
        worst.difference,
        worst.bounds,
        worst.bound,
        max(one.unstable, other.unstable),
        one.busy_ns + other.busy_ns,
        one.failures + other.failures,
    )
