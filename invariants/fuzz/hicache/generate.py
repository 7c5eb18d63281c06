"""Generates tapes: draws each entry from the state that the previous entries have led to."""

from __future__ import annotations

from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import Operation
from invariants.fuzz.hicache.swarm import Swarm
from invariants.fuzz.sequence import Act, Entry

ACTS = 3  # at least; with more ranks one for each, or some would always be alike
TRIES = 8
EVEN = 5  # delay of every action if all take equally long


def weights_of(ops: dict[str, Operation]) -> dict[str, int]:
    return {name: op.weight for name, op in ops.items()}


def next_entry(
    hand: Hand, swarm: Swarm, ops: dict[str, Operation], seed: int, index: int
) -> Entry | None:
    """Returns entry `index` of the tape of this seed, or None if no operation is possible."""
    for turn in range(TRIES):
        draws = Draws(seed, "entry", index, turn)
        name = draws.weighted(swarm.weights)
        args = ops[name].draw(hand, draws)
        if args is not None:
            acts = tuple(_act(swarm, draws) for _ in range(max(ACTS, swarm.ranks)))
            gap = draws.one((0, 1, 1, 5, 40))
            return Entry(name, args, gap, draws.chance(swarm.polled), acts)
    return None


def _act(swarm: Swarm, draws: Draws) -> Act:
    delay, tie = _delay(swarm.profile, draws), draws.below(4)
    if swarm.profile == "even":
        delay, tie = EVEN, 0
    for fault, percent in swarm.faults:
        if draws.chance(percent):
            return Act(delay, tie, fault)
    return Act(delay, tie)


def _delay(profile: str, draws: Draws) -> int:
    if profile == "prompt":
        return draws.below(3)
    if profile == "steady":
        return draws.between(1, 20)
    if profile == "heavy":
        return 1 << draws.below(10)
    return 1000 if draws.chance(15) else draws.between(1, 10)
