"""`hicache mutants --of sim` or `--of accounts`: hunts the mutants of code beside the core.

Does not define options (see commands/mutants), judges or hunts (see judged_work), or lay out
results (see generic_report).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.mutants import mutate, score
from invariants.mutants.mutate import Mutant
from invariants.mutants.score import Score

from ..terminal.output import check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.streams import ignore_broken_pipe
from . import generic_report, judged_work
from .judged_work import TARGETS, Target
from .limits import TimedHunt

NAMES = tuple(TARGETS)


@dataclass(frozen=True)
class Judged:
    """What to hunt. of: one of NAMES. only: a name or its beginning, or None. json: the file."""

    of: str
    only: str | None
    sample: int
    seed: int
    seconds: float
    jobs: int
    json: str | None
    list: bool


def run(asked: Judged, version: int, command: str) -> int:
    """Returns 0 if all but the reviewed mutants were killed, 17 otherwise."""
    target = TARGETS[asked.of]
    chosen = _chosen(asked, target)
    stream = sys.stderr if asked.json == "-" else sys.stdout
    if asked.list:
        for one in chosen:
            print(one.name)
        return 0
    check_outputs({}, json=asked.json)
    done: list[TimedHunt] = []
    complete = False
    try:
        _hunt(asked, target, chosen, done)
        complete = True
    finally:  # also after Ctrl-C, with the results so far
        order = {one.name: at for at, one in enumerate(chosen)}
        done.sort(key=lambda one: order[one.hunt.name])
        sum_ = _summed(target, done, complete and asked.only is None and not asked.sample)
        with ignore_broken_pipe():
            left = len(chosen) - len(done)
            generic_report.show(done, sum_, left, stream, f"generic mutants of {target.title}")
        if asked.json:
            found = document(done, sum_, asked.of)
            head = {"version": version, "command": command, "complete": complete}
            write_json(asked.json, head | found)
    return HARNESS if sum_.survivors or sum_.stale else 0


def document(done: Sequence[TimedHunt], sum_: Score, of: str) -> dict[str, object]:
    """The score as JSON values. Other programs read it: do not rename its keys."""
    return {
        "of": of,
        "generic": generic_report.document(done, sum_),
        "mutants": [generic_report.whole_row(one) for one in done],
    }


def _hunt(asked: Judged, target: Target, chosen: Sequence[Mutant], done: list[TimedHunt]) -> None:
    shown = progress("generic mutants", len(chosen), "hunted")
    with shown as report, judged_work.surveyed(target):
        jobs = min(asked.jobs, len(chosen))
        for one in judged_work.run(target, chosen, asked.seconds, jobs):
            done.append(one)
            report(len(done))


def _summed(target: Target, done: Sequence[TimedHunt], whole: bool) -> Score:
    """The score. whole: all mutants were hunted, so a reviewed name that none has is stale."""
    known = [one.name for one in mutate.mutants(target.places)] if whole else None
    return score.score([one.hunt for one in done], judged_work.reviewed(target), known)


def _chosen(asked: Judged, target: Target) -> list[Mutant]:
    """Raises CallerError if a name matches nothing."""
    every = mutate.mutants(target.places)
    if asked.only is None:
        return score.sample(every, asked.sample, asked.seed)
    found = [one for one in every if one.name == asked.only]
    found = found or [one for one in every if one.name.startswith(asked.only)]
    if not found:
        raise CallerError(
            f"--only: expected a mutant of {target.title}, found {asked.only!r}; "
            f"hicache mutants --of {asked.of} --list has the names"
        )
    return found
