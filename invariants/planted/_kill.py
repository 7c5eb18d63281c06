"""Hunts a planted bug: plays drawn sequences until one fails.

Lives here: the hunt and its result. Does not use clocks, print, or know particular bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from invariants.base import check_names, load_check
from invariants.fuzz.against import SPEC_KIND
from invariants.fuzz.generate import weights_of
from invariants.fuzz.hand import Hand
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import Failure, generate, replay
from invariants.fuzz.swarm import Swarm, draw_swarm
from invariants.fuzz.tapes.tape import Tape

from .base import Bug, planted

ALWAYS = "content and asserts"
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
    """Plays a sequence per seed with the bug planted, until one fails. The checks must find it
    without the specification.

    checks: names of the checks to run; default all. The core's asserts, the contents and the checks
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
            )
            swarm = shape(beside(drawn, bug, seed))
            outcome = generate(swarm, ops, seed, operations, checks=asked, against=False)
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


def noticers(name: str, tape: Tape) -> tuple[str, ...]:
    """Returns the checks that notice the bug on this tape, each run alone, by registry name.

    ALWAYS comes first if asserts, contents, the end of the run or the recount notice it without
    checks. A failure that a check finds after that does not count.
    """
    noticed: list[str] = []
    with planted(name):
        follow = partial(_note, noticed)
        failure = replay(tape, load(), follow=follow, against=False).failure
    alone = [check for check in check_names() if load_check(check).name in noticed]
    return tuple([ALWAYS, *alone] if failure is not None else alone)


def _note(noticed: list[str], hand: Hand) -> None:
    hand.watch.note(noticed)


def differs(name: str, tape: Tape) -> bool:
    """Whether the specification alone notices the bug on this tape."""
    with planted(name):
        failure = replay(tape, load(), "off", against=True).failure
    return failure is not None and failure.kind.startswith(SPEC_KIND)
