"""`hicache mutants`: measures the checks with bugs that are put into the core on purpose.

Exit codes: 0 if every bug was killed that is not on a reviewed list, 17 if one survived.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.fresh.drawing import draw
from invariants.fresh.planting import Bug
from invariants.planted.base import names as planted_names

from ..mutants import fresh_report, fresh_work, planted_report, planted_work, stored
from ..mutants.limits import each
from ..mutants.planted_work import BugJob, Row, Trial
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences
from ..terminal.workers import cores

SUMMARY = "plant bugs in the core, and report what finds each and how fast"
GROUP = "trust"
KINDS = ("planted", "faults")
VERSION = 6
_OPERATIONS = 120
_CALM = 100
_BUDGET_S = 60
_EVENTS = 200_000
_SEED_BYTES = 4
_MOST_FRESH = 100_000
_DIGITS = 9


@dataclass(frozen=True)
class Options(OptionRecord):
    kind: str | None = option(
        "planted bugs, or kinds of faults (default: both)", read.choice(KINDS)
    )
    only: str | None = option("one bug, or all whose names begin so", read.name, "NAME")
    fresh: int = option(
        "draw N new bugs instead, and estimate the share that is found; --only is then the "
        "number of one",
        read.between(0, _MOST_FRESH),
        "N",
        default=0,
    )
    seed: int | None = option("seed of the drawn bugs (default: a new one)", read.at_least(0))
    events: int = option(
        "events after which a planted bug has survived", *read.COUNT, default=_EVENTS
    )
    budget: int | None = option(
        f"time of one core for each drawn bug that survives (default: {_BUDGET_S})",
        read.at_least(1),
        "S",
    )
    shrink: bool = option("shrink the tape of each planted bug, and report its size", default=False)
    calm: int = option(
        "sequences without faults in which a bug that a fault exposes must not be found",
        *read.COUNT,
        default=_CALM,
    )
    jobs: int | None = option("worker processes (default: one for each core)", *read.COUNT)
    json: str | None = option(
        "also write the kill matrix to this file as JSON; - is stdout", *read.OUTPUT
    )
    record: bool = option(
        "write the recorded tapes again, with the current decisions", default=False
    )
    store: bool = option(
        "write the shrunk tape of each planted bug to tests/corpus/planted again", default=False
    )
    list: bool = option("print the names and do nothing else", default=False)


def run(options: Options, command: str) -> int:
    """Hunts the chosen bugs. Returns 0 if all but the reviewed ones were killed, 17 otherwise."""
    if options.fresh:
        return _run_fresh(options, command)
    if options.budget is not None:
        raise CallerError("--budget needs --fresh; otherwise use --events")
    if options.seed is not None:
        raise CallerError("--seed needs --fresh; planted bugs are the same in every run")
    if options.record:
        for path in stored.record():
            print(path)
        return 0
    bugs = _bugs(options.only)
    if options.store:
        return _store(options, bugs)
    wanted = (options.kind,) if options.kind else KINDS
    hunts = [BugJob(one, options.events, _OPERATIONS, options.shrink) for one in bugs]
    hunts = hunts if "planted" in wanted else []
    trials = planted_work.trial_jobs(bugs, options.calm) if "faults" in wanted else []
    if options.list:
        names = [one.name for one in hunts] + [one.name for one in trials]
        for name in dict.fromkeys(names):
            print(name)
        return 0
    check_outputs({}, json=options.json)
    stream = sys.stderr if options.json == "-" else sys.stdout
    rows: list[Row] = []
    tried: list[Trial] = []
    complete = False
    try:
        most = options.jobs or cores()
        with progress("planted bugs", len(hunts), "hunted") as report:
            for row in planted_work.run(hunts, most):
                rows.append(row)
                report(len(rows))
        with progress("exposed by a fault", len(trials), "trials") as report:
            for trial in each(planted_work.attempt, trials, most):
                tried.append(trial)
                report(len(tried))
        complete = True
    finally:  # also after Ctrl-C, with the results so far
        rows.sort(key=lambda one: one.name)
        tried.sort(key=lambda one: (one.name, one.fault))
        with ignore_broken_pipe():
            planted_report.show(rows, tried, stream)
            if told := planted_report.conclusions(rows):
                print_sentences("In words", told, stream)
        if options.json:
            write_json(options.json, document(rows, tried, command, complete))
    whole = complete and not options.only and bool(rows)
    return HARNESS if planted_report.has_gaps(rows, tried, whole) else 0


def document(
    rows: Sequence[Row], trials: Sequence[Trial], command: str, complete: bool
) -> dict[str, object]:
    """The kill matrix as JSON values. Other programs read it: do not rename its keys."""
    return _head(command, complete) | planted_report.document(rows, trials)


def _head(command: str, complete: bool) -> dict[str, object]:
    return {"version": VERSION, "command": command, "complete": complete}


def _store(options: Options, bugs: Sequence[str]) -> int:
    """Stores the tapes of these bugs. Returns 17 if one of them has none, else 0."""
    jobs = [stored.StoreJob(name, options.events) for name in bugs]
    without = []
    with progress("planted bugs", len(jobs), "hunted") as report:
        for done, (name, found) in enumerate(each(stored.work, jobs, options.jobs or cores()), 1):
            report(done)
            without += [] if found else [name]
    for name in sorted(without):
        print(f"no tape: {name}")
    return HARNESS if without else 0


def _bugs(only: str | None) -> list[str]:
    """The names of all bugs; the one that equals `only`, or else those that begin with it. Raises
    CallerError if there is none."""
    names = planted_names()
    if only is None:
        return names
    exact = [name for name in names if name in (only, only.replace("_", "-"))]
    exact = exact or [name for name in names if name.startswith(only)]
    if not exact:
        raise CallerError(
            f"--only: no planted bug is called {only!r}; hicache mutants --list has the names"
        )
    return exact


# -- drawn bugs


def _run_fresh(options: Options, command: str) -> int:
    """Hunts drawn bugs. Returns 0 if all were killed, 17 otherwise. Raises CallerError for an
    option that they do not have."""
    for name in ("kind", "shrink", "record", "store"):
        if getattr(options, name):
            raise CallerError(f"--{name} and --fresh do not go together; leave one out")
    seed = int.from_bytes(os.urandom(_SEED_BYTES)) if options.seed is None else options.seed
    budget = options.budget or _BUDGET_S
    if options.list:
        for bug in _drawn(options, seed):
            print(f"{bug.name}  {' + '.join(bug.edits)}")
        return 0
    check_outputs({}, json=options.json)
    stream = sys.stderr if options.json == "-" else sys.stdout
    bugs = _drawn(options, seed)
    with ignore_broken_pipe():
        print(f"seed {seed}: --seed {seed} draws the same bugs", file=stream, flush=True)
    rows: list[fresh_work.Row] = []
    complete = False
    try:
        jobs = [fresh_work.Job(bug, seed, float(budget)) for bug in bugs]
        with progress("drawn bugs", len(jobs), "hunted") as report:
            for row in fresh_work.run(jobs, options.jobs or cores()):
                rows.append(row)
                report(len(rows))
        complete = True
    finally:  # also after Ctrl-C, with the results so far
        rows.sort(key=lambda row: row.bug.number)
        with ignore_broken_pipe():
            fresh_report.show(rows, options.fresh, seed, stream)
            told = fresh_report.conclusions(rows, len(bugs) - len(rows), budget)
            print_sentences("In words", told, stream)
        if options.json:
            found = fresh_report.document(rows, len(bugs), seed, budget)
            write_json(options.json, _head(command, complete) | found)
    return 0 if all(row.verdict.killed for row in rows) else HARNESS


def _drawn(options: Options, seed: int) -> list[Bug]:
    """The bugs of the set. Raises CallerError if `--only` is not the number of one."""
    if not options.only:
        return list(draw(seed, options.fresh))
    plain = options.only.isascii() and options.only.isdigit() and len(options.only) <= _DIGITS
    number = int(options.only) if plain else 0
    if not 1 <= number <= options.fresh:
        raise CallerError(
            f"--only: expected the number of a drawn bug, 1 to {options.fresh}, found "
            f"{options.only!r}"
        )
    return list(draw(seed, number))[-1:]
