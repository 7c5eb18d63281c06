"""Hunts a planted bug: plays drawn sequences until one fails.

Lives here: the hunt and its result. Does not use clocks, print, or know particular bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import Failure, generate, replay
from invariants.fuzz.swarm import Swarm, draw_swarm
from invariants.fuzz.tapes.tape import Tape
from invariants.watch import Level

from .base import Bug, planted

PERCENT = 20  # percent of actions with the exposing fault, in every other sequence


@dataclass(frozen=True)
class Hunt:
    """The result of a hunt. failure: the first failure, or None if the bug survived. operations:
    number of events, over all `sequences`. tape, seed: of the failing sequence.
    """

    name: str
    failure: Failure | None
    operations: int
    sequences: int
    seed: int = -1
    tape: Tape | None = None

    @property
    def found(self) -> tuple[int, str] | None:
        """The code and kind of the failure, equal for hunts that found the same."""
        return (self.failure.code, self.failure.kind) if self.failure is not None else None


def hunt(
    name: str,
    seeds: Iterable[int],
    operations: int = 120,
    checks: Iterable[str] | None = None,
    shape: Callable[[Swarm], Swarm] = lambda swarm: swarm,
    most_events: int = 1 << 62,
) -> Hunt:
    """Plays a sequence per seed with the bug planted, until one fails.

    checks: names of the checks to run, without the specification; default all, and the
    specification. The core's asserts, the contents and the checks
    at the end always run. shape: changes the drawn swarm. most_events: after so many, no sequence
    begins, so that the verdict is the same on every machine. If kinds of faults expose the bug, one
    of them is on in every other sequence.
    """
    ops = load()
    weights = weights_of(ops)
    asked = None if checks is None else tuple(checks)
    events = count = 0
    with planted(name) as bug:
        for seed in seeds:
            drawn = draw_swarm(
                seed,
                weights,
                bug.components,
                ranks=bug.ranks,
                executor=bug.executor,
                eviction=bug.eviction,
                wanted=bug.wanted,
                passes=bug.passes,
            )
            swarm = shape(beside(drawn, bug, seed))
            outcome = generate(swarm, ops, seed, operations, checks=asked)
            events += outcome.hand.events
            count += 1
            if outcome.failure is not None:
                return Hunt(name, outcome.failure, events, count, seed, outcome.tape)
            if events >= most_events:
                break
    return Hunt(name, None, events, count)


def beside(swarm: Swarm, bug: Bug, seed: int) -> Swarm:
    """The swarm with one of the faults that expose the bug, if there are any, and its delays."""
    if not bug.faults or seed % 2:
        return swarm
    one = bug.faults[seed // 2 % len(bug.faults)]
    faults = tuple(pair for pair in swarm.faults if pair[0] != one)
    return replace(swarm, faults=((one, PERCENT), *faults), profile=bug.delays or swarm.profile)


def noticed(name: str, tape: Tape, level: Level, against: bool) -> bool:
    """Whether a replay of this tape notices the bug: with the checks of this level, or with the
    specification, or both."""
    with planted(name):
        return replay(tape, load(), level, against=against).failure is not None
