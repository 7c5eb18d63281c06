"""All judges of the simulator, by name. A judge raises AssertionError if what it knows is not so.

Does not contain a judge (see the judged_* files, queueing and runs).
"""

from __future__ import annotations

from collections.abc import Callable

from . import (
    cases,
    judged_bytes,
    judged_content,
    judged_copies,
    judged_costs,
    judged_forward,
    judged_link,
    judged_orders,
    judged_poison,
    judged_profile,
    judged_roofline,
    judged_worlds,
    queueing,
    runs,
)
from .runs import Case

_CASES = (*range(20), 130)  # in 130 a request restarts that has had its first token
_CROWDED = (3, 9, 11, 17, 23)
_PROFILED = (*range(20), 37, 62)  # in 37 a preempted request would come back at once, for ever


def _agrees(make: Callable[[int], Case], seed: int) -> Callable[[], None]:
    def agree() -> None:
        runs.agree(make(seed))

    return agree


def named() -> dict[str, Callable[[], None]]:
    """The judges, in words: single properties, then whole runs of both engines."""
    parts = (
        *(judged_costs, judged_roofline, judged_profile, judged_link, judged_bytes),
        *(judged_content, judged_copies, judged_poison, judged_forward, judged_orders),
        *(judged_worlds, queueing),
    )
    found = {judge.__name__.replace("_", " "): judge for part in parts for judge in part.JUDGES}
    drawn = {f"both engines agree on case {seed}": (cases.drawn, seed) for seed in _CASES}
    crowded = {f"both engines agree on crowd {seed}": (cases.crowded, seed) for seed in _CROWDED}
    engines = {
        f"both engines agree on profile {seed}": (cases.profiled, seed) for seed in _PROFILED
    }
    return found | {name: _agrees(*each) for name, each in (drawn | crowded | engines).items()}
