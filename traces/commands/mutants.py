"""`hicache mutants`: measures the checks with bugs that are put into the core on purpose.

Exit codes: 0 if every bug was killed that is not on a reviewed list, 17 if one survived.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.planted.base import names as planted_names

from ..mutants import fresh_run, planted_report, planted_work, recorded, stored
from ..mutants.fresh_run import Fresh
from ..mutants.limits import each
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
        for path in recorded.record():
            print(path)
        return 0
    if options.store:
        return _store(options)
    chosen = _chosen(options)
    stream = sys.stderr if options.json == "-" else sys.stdout
    if options.list:
        for name in chosen.listed():
            print(name)
        return 0
    check_outputs({}, json=options.json)
    done = Done([], [])
    complete = False
    try:
        _hunt(options, chosen, done)
        complete = True
    finally:  # also after Ctrl-C, with the results so far
        done.sort()
        whole = complete and not options.only and bool(done.planted)
        with ignore_broken_pipe():
            planted_report.show(done.planted, done.trials, stream)
            if told := planted_report.conclusions(done.planted):
                print_sentences("In words", told, stream)
        if options.json:
            write_json(options.json, document(done, command, complete))
    return HARNESS if planted_report.has_gaps(done.planted, done.trials, whole) else 0


def _store(options: Options) -> int:
    """Stores the tapes of the chosen bugs. Returns 17 if one of them has none, else 0."""
    jobs = [stored.StoreJob(name, options.events) for name in _bugs(options)]
    without = []
    with progress("planted bugs", len(jobs), "hunted") as report:
        for done, (name, found) in enumerate(stored.run(jobs, options.jobs or cores()), 1):
            report(done)
            without += [] if found else [name]
    for name in sorted(without):
        print(f"no tape: {name}")
    return HARNESS if without else 0


def _run_fresh(options: Options, command: str) -> int:
    """Hunts drawn bugs. Raises CallerError for an option that they do not have."""
    given = ("kind", "shrink", "record", "store")
    for name in given:
        if getattr(options, name):
            raise CallerError(f"--{name} and --fresh do not go together; leave one out")
    seed = int.from_bytes(os.urandom(_SEED_BYTES)) if options.seed is None else options.seed
    budget, jobs = options.budget or _BUDGET_S, options.jobs or cores()
    asked = Fresh(options.fresh, seed, budget, options.only or "", jobs, options.json)
    if options.list:
        for bug in fresh_run.chosen(asked):
            print(f"{bug.name}  {' + '.join(bug.edits)}")
        return 0
    return fresh_run.run(
        asked, lambda done: {"version": VERSION, "command": command, "complete": done}
    )


@dataclass(frozen=True)
class Chosen:
    """The bugs to hunt."""

    planted: list[planted_work.BugJob]
    trials: list[planted_work.TrialJob]

    def listed(self) -> list[str]:
        names = [job.name for job in self.planted] + [job.name for job in self.trials]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Done:
    """The results of the hunts so far."""

    planted: list[planted_work.Row]
    trials: list[planted_work.Trial]

    def sort(self) -> None:
        self.planted.sort(key=lambda one: one.name)
        self.trials.sort(key=lambda one: (one.name, one.fault))


def _hunt(options: Options, chosen: Chosen, done: Done) -> None:
    """Hunts one kind after the other, and adds each result to `done`."""
    most = options.jobs or cores()
    with progress("planted bugs", len(chosen.planted), "hunted") as report:
        for row in planted_work.run(chosen.planted, most):
            done.planted.append(row)
            report(len(done.planted))
    with progress("exposed by a fault", len(chosen.trials), "trials") as report:
        for trial in each(planted_work.attempt, chosen.trials, most):
            done.trials.append(trial)
            report(len(done.trials))


def _chosen(options: Options) -> Chosen:
    """Raises CallerError if a name matches nothing."""
    wanted = (options.kind,) if options.kind else KINDS
    bugs = _bugs(options)
    planted = [
        planted_work.BugJob(one, options.events, _OPERATIONS, options.shrink) for one in bugs
    ]
    return Chosen(
        planted if "planted" in wanted else [],
        planted_work.trial_jobs(bugs, options.calm) if "faults" in wanted else [],
    )


def _bugs(options: Options) -> list[str]:
    bugs = planted_names()
    return bugs if options.only is None else _matching(options.only, bugs)


def _matching(only: str, names: list[str]) -> list[str]:
    """The names that equal `only`, or else those that begin with it. Raises CallerError."""
    exact = [name for name in names if name in (only, only.replace("_", "-"))]
    exact = exact or [name for name in names if name.startswith(only)]
    if not exact:
        raise CallerError(
            f"--only: no planted bug is called {only!r}; hicache mutants --list has the names"
        )
    return exact


# -- the document


def document(done: Done, command: str, complete: bool) -> dict[str, object]:
    """The kill matrix as JSON values. Other programs read it: do not rename its keys."""
    return {
        "version": VERSION,
        "command": command,
        "complete": complete,
        **planted_report.document(done.planted, done.trials),
    }
