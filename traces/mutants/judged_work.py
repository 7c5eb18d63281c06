"""Hunts generic mutants of the simulator and of the accounts, in worker processes.

Contains the places whose code is changed, their judges, the clocks and the processes. Does not
define judges (see invariants/simulator and judged_accounts), options or output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from invariants.mutants import judges as hunting
from invariants.mutants import mutate, score
from invariants.mutants.judges import Judge, Surveyed
from invariants.mutants.mutate import Mutant
from invariants.simulator import judges as of_sim

from . import judged_accounts
from .limits import TimedHunt, each, time_limit

SECONDS = 20.0  # of processor time for a mutant that survives
JUDGE_S = 100.0  # a judge takes a second; loops are counted, so this is for what does not loop
REVIEWED_S = 1.0  # for a mutant on the list of equivalents


@dataclass(frozen=True)
class Target:
    """Code whose mutants are hunted. places: packages and modules. judges: by name. reviewed: the
    list of equivalent mutants.
    """

    title: str
    places: tuple[str, ...]
    judges: Callable[[], dict[str, Callable[[], None]]]
    reviewed: Path


def _list(name: str) -> Path:
    return score.EQUIVALENT.with_name(f"equivalent_{name}.txt")


TARGETS = {
    "sim": Target("the simulator", ("sim",), of_sim.named, _list("sim")),
    "accounts": Target(
        "the accounts", judged_accounts.PLACES, judged_accounts.named, _list("accounts")
    ),
}

_surveyed: list[Surveyed] = []


def reviewed(target: Target) -> dict[str, str]:
    """The reviewed equivalent mutants: names and reasons."""
    return score.equivalent(target.reviewed.read_text(encoding="utf-8"), target.reviewed.name)


@contextmanager
def surveyed(target: Target) -> Iterator[int]:
    """Surveys the judges for the block; loops count their steps. Yields the number of judges."""
    with mutate.counted(target.places):
        made = [Judge(name, holds) for name, holds in target.judges().items()]
        _surveyed[:] = hunting.survey(made, target.places)
        yield len(_surveyed)
    _surveyed.clear()


def run(
    target: Target, mutants: Sequence[Mutant], seconds: float, processes: int
) -> Iterator[TimedHunt]:
    """Yields the result of each mutant as it is known. Call it inside `surveyed`."""
    known = reviewed(target)
    jobs = [
        (target, one, REVIEWED_S if one.name in known else min(seconds, SECONDS)) for one in mutants
    ]
    yield from each(_work, jobs, processes)


def _work(job: tuple[Target, Mutant, float]) -> TimedHunt:
    """Hunts one mutant in this process."""
    target, mutant, seconds = job
    began = time.process_time()

    def more() -> bool:
        return time.process_time() - began < seconds

    found = hunting.hunt(mutant, _surveyed, target.places, more, lambda: time_limit(JUDGE_S))
    return TimedHunt(found, time.process_time() - began)
