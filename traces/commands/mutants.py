"""`hicache mutants`: measures the checks with bugs that are put into the core on purpose.

Contains the command and the choice of bugs. Does not plant or hunt bugs (see invariants), run the
worker processes (see mutants/generic_work and mutants/planted_work), or print results (see
mutants/generic_report and mutants/planted_report).

Exit codes: 0 if every bug was killed that is not on a reviewed list, 17 if one survived.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.mutants import mutate, score
from invariants.mutants.mutate import Mutant
from invariants.mutants.score import Score
from invariants.planted.base import names as planted_names

from ..mutants import (
    fresh_run,
    generic_report,
    generic_work,
    judged_run,
    planted_report,
    planted_work,
)
from ..mutants.fresh_run import Fresh
from ..mutants.judged_run import Judged
from ..mutants.limits import TimedHunt, each
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.progress import progress
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences
from ..terminal.workers import cores

SUMMARY = "plant bugs in the core, and report what finds each and how fast"
KINDS = ("generic", "planted", "faults")
VERSION = 4
_OPERATIONS = 120
_FEW, _FEW_TAPES = 40, 24  # for up to 40 mutants, a survey of fewer tapes is enough
_CALM = 100
_SECONDS = 60
_EVENTS = 200_000
_SEED_BYTES = 4
_MOST_FRESH = 100_000


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    kind: str | None
    of: str | None
    only: str | None
    sample: int
    fresh: int
    seed: int | None
    events: int
    seconds: int | None
    budget: int | None
    shrink: bool
    calm: int
    jobs: int | None
    json: str | None
    record: bool
    list: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--kind",
        type=read.choice(KINDS),
        help="mutants, planted bugs, or kinds of faults (default: all)",
    )
    of = "hunt the generic mutants of other code, with its judges (default: of the core)"
    add("--of", type=read.choice(judged_run.NAMES), help=of)
    add(
        "--only",
        type=read.name,
        metavar="NAME",
        help="one bug or mutant, or all whose names begin so",
    )
    add(
        "--sample",
        type=read.at_least(0),
        default=0,
        metavar="N",
        help="draw this many mutants (default: all)",
    )
    add(
        "--fresh",
        type=read.between(0, _MOST_FRESH),
        default=0,
        metavar="N",
        help="draw N new bugs instead, and estimate the share that is found; --only is then the "
        "number of one",
    )
    seed = "seed of the sample (default: 0), or of the drawn bugs (default: a new one)"
    add("--seed", type=read.at_least(0), help=seed)
    add(
        "--events",
        type=read.at_least(1),
        default=_EVENTS,
        metavar="N",
        help="events after which a planted bug has survived",
    )
    add(
        "--seconds",
        type=read.at_least(1),
        metavar="S",
        help=f"time for each mutant that survives (default: {_SECONDS}; of the core: at most 20)",
    )
    add(
        "--budget",
        type=read.at_least(1),
        metavar="S",
        help=f"time of one core for each drawn bug that survives (default: {_SECONDS})",
    )
    _add_outputs(parser)


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    """Adds the options about tapes, processes and what is written."""
    add = parser.add_argument
    add(
        "--shrink",
        action="store_true",
        help="shrink the tape of each planted bug, and report its size",
    )
    calm = "sequences without faults in which a bug that a fault exposes must not be found"
    add("--calm", type=read.at_least(1), default=_CALM, metavar="N", help=calm)
    add(
        "--jobs",
        type=read.at_least(1),
        metavar="N",
        help="worker processes (default: one for each core)",
    )
    add(
        "--json",
        type=read.output,
        metavar="FILE",
        help="also write the kill matrix to this file as JSON; - is stdout",
    )
    add(
        "--record",
        action="store_true",
        help="write the recorded tapes again, with the current decisions",
    )
    add("--list", action="store_true", help="print the names and do nothing else")


def run(options: Options, command: str) -> int:
    """Hunts the chosen bugs. Returns 0 if all but the reviewed ones were killed, 17 otherwise."""
    if options.fresh:
        return _run_fresh(options, command)
    if options.budget is not None:
        raise CallerError("--budget: expected with --fresh, found without it; use --seconds")
    if options.of:
        return _run_judged(options, options.of, command)
    if options.record:
        for path in generic_work.record():
            print(path)
        return 0
    chosen = _chosen(options)
    stream = sys.stderr if options.json == "-" else sys.stdout
    if options.list:
        for name in chosen.listed():
            print(name)
        return 0
    check_outputs({}, json=options.json)
    done = Done([], [], [])
    complete = False
    try:
        _hunt(options, chosen, done)
        complete = True
    finally:  # also after Ctrl-C, with the results so far
        done.sort([one.name for one in chosen.generic])
        every = complete and not options.only and not options.sample
        sum_ = generic_report.summed(done.generic, every)
        whole = complete and not options.only and bool(done.planted)
        with ignore_broken_pipe():
            planted_report.show(done.planted, done.trials, whole, stream)
            if done.generic:
                left = len(chosen.generic) - len(done.generic)
                generic_report.show(done.generic, sum_, left, stream)
            if told := planted_report.conclusions(done.planted):
                print_sentences("In words", told, stream)
        if options.json:
            write_json(options.json, document(done, sum_, command, complete))
    short = planted_report.has_gaps(done.planted, done.trials, whole)
    return HARNESS if short or sum_.survivors or sum_.stale else 0


def _run_judged(options: Options, of: str, command: str) -> int:
    """Hunts mutants beside the core. Raises CallerError for an option that they do not have."""
    given = {"kind": options.kind not in (None, "generic"), "shrink": options.shrink}
    given |= {"record": options.record}
    for name, found in given.items():
        if found:
            raise CallerError(f"--{name}: expected without --of, found with it; leave one out")
    asked = Judged(
        of,
        options.only,
        options.sample,
        options.seed or 0,
        _seconds(options),
        options.jobs or cores(),
        options.json,
        options.list,
    )
    return judged_run.run(asked, VERSION, command)


def _run_fresh(options: Options, command: str) -> int:
    """Hunts drawn bugs. Raises CallerError for an option that they do not have."""
    given = ("kind", "of", "sample", "seconds", "shrink", "record")
    for name in given:
        if getattr(options, name):
            raise CallerError(f"--{name}: expected without --fresh, found with it; leave one out")
    seed = int.from_bytes(os.urandom(_SEED_BYTES)) if options.seed is None else options.seed
    budget, jobs = options.budget or _SECONDS, options.jobs or cores()
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
    generic: list[Mutant]

    def listed(self) -> list[str]:
        names = [job.name for job in self.planted] + [job.name for job in self.trials]
        return list(dict.fromkeys([*names, *(one.name for one in self.generic)]))


@dataclass(frozen=True)
class Done:
    """The results of the hunts so far."""

    planted: list[planted_work.Row]
    trials: list[planted_work.Trial]
    generic: list[TimedHunt]

    def sort(self, names: list[str]) -> None:
        """Sorts the results. names: of the mutants, in order."""
        order = {name: at for at, name in enumerate(names)}
        self.planted.sort(key=lambda one: one.name)
        self.trials.sort(key=lambda one: (one.name, one.fault))
        self.generic.sort(key=lambda one: order[one.hunt.name])


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
    if chosen.generic:
        with progress("generic mutants", len(chosen.generic), "hunted") as report:
            few = len(chosen.generic) <= _FEW
            with generic_work.surveyed(_FEW_TAPES if few else generic_work.EACH):
                seconds, jobs = _seconds(options), min(most, len(chosen.generic))
                for one in generic_work.run(chosen.generic, seconds, jobs):
                    done.generic.append(one)
                    report(len(done.generic))


def _chosen(options: Options) -> Chosen:
    """Raises CallerError if a name matches nothing."""
    wanted = (options.kind,) if options.kind else KINDS
    bugs = planted_names() if {*wanted} & {"planted", "faults"} else []
    generic: list[Mutant] = []
    if "generic" in wanted:
        count = 0 if options.only else options.sample
        generic = score.sample(mutate.mutants(), count, options.seed or 0)
    names = [*bugs, *(one.name for one in generic)]
    if options.only is not None:
        names = _matching(options.only, names)
    kept = dict.fromkeys(names)
    bugs = [name for name in bugs if name in kept]
    return Chosen(
        [planted_work.BugJob(name, options.events, _OPERATIONS, options.shrink) for name in bugs]
        if "planted" in wanted
        else [],
        planted_work.trial_jobs(bugs, options.calm) if "faults" in wanted else [],
        [one for one in generic if one.name in kept],
    )


def _seconds(options: Options) -> float:
    return float(options.seconds or _SECONDS)


def _matching(only: str, names: list[str]) -> list[str]:
    """The names that equal `only`, or else those that begin with it. Raises CallerError."""
    exact = [name for name in names if name in (only, only.replace("_", "-"))]
    exact = exact or [name for name in names if name.startswith(only)]
    if not exact:
        raise CallerError(
            f"--only: expected a planted bug or a mutant, found {only!r}; "
            "hicache mutants --list has the names"
        )
    return exact


# -- the document


def document(done: Done, sum_: Score, command: str, complete: bool) -> dict[str, object]:
    """The kill matrix as JSON values. Other programs read it: do not rename its keys."""
    return {
        "version": VERSION,
        "command": command,
        "complete": complete,
        **planted_report.document(done.planted, done.trials),
        "generic": generic_report.document(done.generic, sum_),
        "mutants": [generic_report.whole_row(one) for one in done.generic],
    }
