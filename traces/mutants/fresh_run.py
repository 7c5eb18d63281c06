"""`hicache mutants --fresh N`: draws N bugs, hunts each, and reports the score.

Does not define options (see commands/mutants), hunt (see fresh_work) or lay out results (see
fresh_report).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.fresh.drawing import Bug, draw

from ..terminal.output import check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences
from . import fresh_report, fresh_work

_DIGITS = 9


@dataclass(frozen=True)
class Fresh:
    """What to hunt. only: the number of one bug, or "" for all. json: the output file, or None."""

    count: int
    seed: int
    budget_s: int
    only: str
    jobs: int
    json: str | None


def chosen(asked: Fresh) -> list[Bug]:
    """The bugs of the set. Raises CallerError if `only` is not the number of one."""
    if not asked.only:
        return list(draw(asked.seed, asked.count))
    plain = asked.only.isascii() and asked.only.isdigit() and len(asked.only) <= _DIGITS
    number = int(asked.only) if plain else 0
    if not 1 <= number <= asked.count:
        raise CallerError(
            f"--only: expected the number of a drawn bug, 1 to {asked.count}, found {asked.only!r}"
        )
    return list(draw(asked.seed, number))[-1:]


def run(asked: Fresh, document: Callable[[bool], dict[str, object]]) -> int:
    """Returns 0 if all drawn bugs were killed, 17 otherwise. document: the head of the JSON; its
    argument says whether all bugs have a result.
    """
    check_outputs({}, json=asked.json)
    stream = sys.stderr if asked.json == "-" else sys.stdout
    bugs = chosen(asked)
    with ignore_broken_pipe():
        print(
            f"seed {asked.seed}: --seed {asked.seed} draws the same bugs", file=stream, flush=True
        )
    rows: list[fresh_work.Row] = []
    complete = False
    try:
        jobs = [fresh_work.Job(bug, asked.seed, float(asked.budget_s)) for bug in bugs]
        with progress("drawn bugs", len(jobs), "hunted") as report:
            for row in fresh_work.run(jobs, asked.jobs):
                rows.append(row)
                report(len(rows))
        complete = True
    finally:  # also after Ctrl-C, with the results so far
        rows.sort(key=lambda row: row.bug.number)
        left = len(bugs) - len(rows)
        with ignore_broken_pipe():
            fresh_report.show(rows, asked.count, asked.seed, stream)
            told = fresh_report.conclusions(rows, left, asked.budget_s)
            print_sentences("In words", told, stream)
        if asked.json:
            found = fresh_report.document(rows, len(bugs), asked.seed, asked.budget_s)
            write_json(asked.json, document(complete) | found)
    return 0 if all(row.verdict.killed for row in rows) else HARNESS
