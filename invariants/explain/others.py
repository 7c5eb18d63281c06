"""Events to compare a failing one with: those of sequences drawn for the tape's own settings.

A sequence that fails, too, has one more failing event: the first one after which the core differs
from the specification, or else its last. What is wrong runs in all of those, and rarely elsewhere.

Lives here: drawing and playing the sequences. Does not trace (see coverage) or compare what ran
(see suspects).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hicache.core.errors import CallerError

from ..fuzz import play
from ..fuzz.generate import weights_of
from ..fuzz.ops.base import Operation
from ..fuzz.swarm import draw_swarm
from ..fuzz.tapes.tape import Tape
from .coverage import Coverage, Ran
from .difference import Comparison

OPERATIONS = 40
TRACED = 3  # sequences that are traced in any case
MOST, ENOUGH = 16, 6  # sequences; those that fail


class Others(NamedTuple):
    """What ran for events of other sequences: for those that were fine, and at failing ones."""

    fine: list[Ran]
    failing: list[Ran]


def other_events(tape: Tape, ops: dict[str, Operation]) -> Others:
    """Returns the events of sequences with the settings of the tape."""
    found = Others([], [])
    weights = weights_of(ops)
    for seed in range(MOST):
        if seed >= TRACED and len(found.failing) >= ENOUGH:
            break
        components, executor = tape.config.components, tape.executor
        swarm = draw_swarm(seed, weights, components, ranks=tape.ranks, executor=executor)
        swarm = replace(swarm, config=tape.config, pairs=tape.pairs, executor=executor)
        comparison = Comparison(tape.config)
        try:
            outcome = play.generate(swarm, ops, seed, OPERATIONS, follow=comparison.follow)
        except CallerError:
            continue  # a policy of the user raised an error
        first = comparison.first
        if outcome.failure is None and first is None and seed >= TRACED:
            continue
        ran = _traced(outcome.tape, ops)
        at = len(ran) - 1 if first is None else first.event - 1
        if outcome.failure is None and first is None:
            found.fine.extend(ran)
        elif ran:
            found.fine.extend(ran[:at])
            found.failing.append(ran[at])
    return found


def _traced(tape: Tape, ops: dict[str, Operation]) -> list[Ran]:
    coverage = Coverage()
    with coverage.tracing():
        play.replay(tape, ops, follow=coverage.follow)
    return coverage.ran()
