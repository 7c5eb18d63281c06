"""Which kinds of faults a planted bug takes to be seen: calm sequences, and one kind in them.

    calm    every copy and pass takes as long as any other, replies are taken in that order, and
            nobody aborts, retracts, flushes, misuses or takes all pages away on purpose
    hunted  the same sequences, with one kind of fault in so many percent of the actions

A bug that its file says a kind exposes is seen with that kind alone, and in no calm sequence: what
the kind does is all that differs. Must not live here: what a kind does, or clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from invariants.fuzz.swarm import Swarm

from . import _kill as kill
from ._kill import Hunt
from .base import load

CALM = ("arrive", "admit", "prefill", "finish", "match", "wait", "quiesce")
PERCENT = 40


def calm(swarm: Swarm, fault: str = "", delays: str = "even", ranks: int = 1) -> Swarm:
    """The same corner, where nothing goes wrong, or one kind of fault does."""
    return replace(
        swarm,
        order="time",
        weights=tuple(one for one in swarm.weights if one[0] in CALM),
        faults=((fault, PERCENT),) if fault else (),
        profile=delays,
        polled=100,
        ranks=ranks,
    )


def hunt(name: str, fault: str, seeds: Iterable[int], operations: int = 120) -> Hunt:
    """As `kill.hunt`, in calm sequences with this kind of fault, or with none for an empty name."""
    bug = load(name)
    delays, ranks = getattr(bug, "DELAYS", "even"), getattr(bug, "RANKS", 1)
    return kill.hunt(name, seeds, operations, shape=lambda swarm: calm(swarm, fault, delays, ranks))
