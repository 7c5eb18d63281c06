"""Hunting a planted bug: sequences of drawn operations until something notices it.

Lives here: how a hunt goes and what it came to. Must not live here: clocks, printing, or any
knowledge of a particular bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from invariants.fuzz.executors import REPLIES
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops.base import load
from invariants.fuzz.play import Failure, generate
from invariants.fuzz.swarm import draw_swarm
from invariants.fuzz.tape import Tape

from .base import planted


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
    name: str, seeds: Iterable[int], operations: int = 120, checks: Iterable[str] | None = None
) -> Hunt:
    """Play a sequence per seed with the bug planted, until one fails. checks: by their registry
    names; all of them unless given. The core's asserts, the content and the end always look."""
    ops = load()
    weights = weights_of(ops)
    asked = None if checks is None else tuple(checks)
    events = count = 0
    with planted(name) as bug:
        components, ranks = getattr(bug, "COMPONENTS", ()), getattr(bug, "RANKS", 0)
        executor = getattr(bug, "EXECUTOR", REPLIES)
        for seed in seeds:
            swarm = draw_swarm(seed, weights, components, ranks=ranks, executor=executor)
            outcome = generate(swarm, ops, seed, operations, checks=asked)
            events += outcome.hand.events
            count += 1
            if outcome.failure is not None:
                return Hunt(name, outcome.failure, events, count, seed, outcome.tape)
    return Hunt(name, None, events, count)
