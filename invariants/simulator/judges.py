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
    judged_link,
    judged_poison,
    judged_profile,
    judged_worlds,
    queueing,
    runs,
)

_CASES = 20


def _agrees(seed: int) -> Callable[[], None]:
    def agree() -> None:
        runs.agree(cases.drawn(seed))

    return agree


def named() -> dict[str, Callable[[], None]]:
    """The judges, in words: single properties, then whole runs of both engines."""
    parts = (
        *(judged_costs, judged_profile, judged_link, judged_bytes, judged_content),
        *(judged_copies, judged_poison, judged_worlds, queueing),
    )
    found = {judge.__name__.replace("_", " "): judge for part in parts for judge in part.JUDGES}
    return found | {f"both engines agree on case {seed}": _agrees(seed) for seed in range(_CASES)}
