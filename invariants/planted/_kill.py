"""Hunting a planted bug: sequences of drawn operations until something notices it.

Lives here: how a hunt goes and what it came to. Must not live here: clocks, printing, or any
knowledge of a particular bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from invariants.base import check_names, load_check
from invariants.fuzz.executors import REPLIES
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import Failure, generate, replay
from invariants.fuzz.swarm import Swarm, draw_swarm
from invariants.fuzz.tapes.tape import Tape

from .base import PlantedBug, planted

ALWAYS = "content and asserts"
PERCENT = 20  # of actions, that a kind of fault hits in every other sequence


@dataclass(frozen=True)
class Hunt:
    """failure: what noticed it first, None where the bug survived. operations: events fed to cores
    until then, over all `sequences`. tape: of the sequence that failed. seed: of that sequence."""

    name: str
    failure: Failure | None
    operations: int
    sequences: int
    seed: int = -1
    tape: Tape | None = None

    @property
    def found(self) -> tuple[int, str] | None:
        """What two hunts that found the same share."""
        return (self.failure.code, self.failure.kind) if self.failure is not None else None


def hunt(
    name: str,
    seeds: Iterable[int],
    operations: int = 120,
    checks: Iterable[str] | None = None,
    shape: Callable[[Swarm], Swarm] = lambda swarm: swarm,
) -> Hunt:
    """Play a sequence per seed with the bug planted, until one fails. checks: by their registry
    names; all of them unless given. The core's asserts, the content and the end always look.
    shape: what is made of the corner that a seed draws. A bug that a kind of fault exposes has one
    of them on in every other sequence."""
    ops = load()
    weights = weights_of(ops)
    asked = None if checks is None else tuple(checks)
    events = count = 0
    with planted(name) as bug:
        components, ranks = getattr(bug, "COMPONENTS", ()), getattr(bug, "RANKS", 0)
        executor, eviction = getattr(bug, "EXECUTOR", REPLIES), getattr(bug, "EVICTION", "")
        for seed in seeds:
            drawn = draw_swarm(
                seed, weights, components, ranks=ranks, executor=executor, eviction=eviction
            )
            swarm = shape(_beside(drawn, bug, seed))
            outcome = generate(swarm, ops, seed, operations, checks=asked)
            events += outcome.hand.events
            count += 1
            if outcome.failure is not None:
                return Hunt(name, outcome.failure, events, count, seed, outcome.tape)
    return Hunt(name, None, events, count)


def _beside(swarm: Swarm, bug: PlantedBug, seed: int) -> Swarm:
    """With one of the kinds of faults that expose it on, and its delays, where it has any."""
    kinds: tuple[str, ...] = getattr(bug, "FAULTS", ())
    if not kinds or seed % 2:
        return swarm
    one = kinds[seed // 2 % len(kinds)]
    faults = tuple(pair for pair in swarm.faults if pair[0] != one)
    profile = getattr(bug, "DELAYS", swarm.profile)
    return replace(swarm, faults=((one, PERCENT), *faults), profile=profile)


def noticers(name: str, tape: Tape) -> tuple[str, ...]:
    """Who notices the bug on this tape, asked alone: checks, by their registry names; and first,
    ALWAYS, where no check has to be asked, because the core's asserts, the content, the end of the
    run or the recount of the books do. What a check notices behind that does not count."""
    noticed: list[str] = []
    with planted(name):
        failure = replay(tape, load(), follow=lambda hand: hand.watch.note(noticed)).failure
    alone = [check for check in check_names() if load_check(check).name in noticed]
    return tuple([ALWAYS, *alone] if failure is not None else alone)
