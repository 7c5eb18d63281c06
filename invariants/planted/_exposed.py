"""Whether a kind of fault exposes a planted bug: quiet sequences with and without that kind.

    calm    all copies and passes take equally long, replies are taken in that order, and there are
            no aborts, retractions, flushes, misuse or operations that take all pages
    hunted  the same sequences, with one kind of fault in a share of the actions

If a bug names a kind, the bug is found with that kind alone, and in no calm sequence. Does
not define faults or use clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from invariants.fuzz.faults.base import names as kinds
from invariants.fuzz.swarm import STORAGE_FAULTS, Swarm

from . import _kill as kill
from ._kill import Hunt
from .base import load, names

CALM = ("arrive", "admit", "prefill", "finish", "match", "wait", "quiesce")
WARM = "warm"  # empties device and host: fetches need it
PERCENT = 40
# Kinds of faults that expose no planted bug, with the reason.
UNEXPOSED = {
    "host pause": "the core has no clock: that time has passed is seen only in which replies come "
    "first, and these come in the same order, sooner",
}


class Gaps(NamedTuple):
    """Kinds of faults that expose no bug. missing: those that are not on the list. listed: those
    that are. stale: what is on the list, and exposes a bug or does not exist."""

    missing: tuple[str, ...]
    listed: tuple[str, ...]
    stale: tuple[str, ...]


def gaps() -> Gaps:
    exposing = {kind for name in names() for kind in load(name).faults}
    bare = [kind for kind in kinds() if kind not in exposing]
    return Gaps(
        tuple(kind for kind in bare if kind not in UNEXPOSED),
        tuple(kind for kind in bare if kind in UNEXPOSED),
        tuple(kind for kind in UNEXPOSED if kind not in bare),
    )


def calm(
    swarm: Swarm, fault: str = "", delays: str = "even", ranks: int = 1, warm: bool = False
) -> Swarm:
    """Returns the swarm without faults, or with one kind of fault only. warm: whether requests
    arrive for what storage alone has."""
    chosen = (*CALM, WARM) if warm else CALM
    return replace(
        swarm,
        order="time",
        weights=tuple(one for one in swarm.weights if one[0] in chosen),
        faults=((fault, PERCENT),) if fault else (),
        profile=delays,
        polled=100,
        ranks=ranks,
    )


def hunt(name: str, fault: str, seeds: Iterable[int], operations: int = 120) -> Hunt:
    """Hunts like `kill.hunt` in calm sequences with this kind of fault, or with none for ""."""
    bug = load(name)
    delays, ranks = bug.delays or "even", bug.ranks or 1
    warm = any(kind in STORAGE_FAULTS for kind in bug.faults)
    return kill.hunt(
        name, seeds, operations, shape=lambda swarm: calm(swarm, fault, delays, ranks, warm)
    )
