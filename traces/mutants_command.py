"""`hicache mutants`: how good the harness is, measured on bugs that were put in on purpose.

Lives here: the command, what is chosen, what is said of generic mutants. Must not live here: how a
bug is put in or hunted (invariants), the processes that do it (mutants_work, planted_work), or what
is said of planted bugs (planted_report).

Exit codes: 0 everything was killed that is not on the reviewed list, 17 something survived.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.fuzz import mutate, score
from invariants.fuzz.mutate import Mutant
from invariants.planted.base import names as planted_names

from . import options as read
from . import planted_report, planted_work
from .mutants_work import Job, Killed, run
from .output import check_writable
from .progress import progress
from .results import write_json
from .tables import console, pairs, percent

SUMMARY = "plant bugs in the core, and report what kills each and how fast"
KINDS = ("generic", "planted", "faults")
VERSION = 2
_OPERATIONS = 120
_SHOWN = 40
_CALM = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--kind",
        type=read.choice(KINDS),
        help="mutants, planted bugs, or kinds of faults (default: all)",
    )
    add("--only", metavar="NAME", help="one bug, one mutant, or all that begin so")
    add(
        "--sample",
        type=read.at_least(0),
        default=0,
        metavar="N",
        help="so many mutants (default: all)",
    )
    add("--seed", type=read.at_least(0), default=0, help="of the sample")
    add("--seconds", type=read.at_least(1), default=60, metavar="S", help="for each that survives")
    add("--shrink", action="store_true", help="make each planted bug's tape small, and say how")
    calm = "sequences without a fault in which a bug that one exposes is not to be seen"
    add("--calm", type=read.at_least(1), default=_CALM, metavar="N", help=calm)
    add("--jobs", type=read.at_least(1), metavar="N", help="workers (default: every core)")
    add("--json", metavar="FILE", help="write the kill matrix there, too; - is stdout")
    add("--list", action="store_true", help="print the names, and hunt nothing")


def mutants(options: argparse.Namespace, command: str) -> int:
    """Hunts what was chosen. 0 where all are dead but the reviewed, 17 where not."""
    chosen = _chosen(options)
    stream = sys.stderr if options.json == "-" else sys.stdout
    if options.list:
        for name in chosen.listed():
            print(name)
        return 0
    if options.json:
        check_writable(options.json)
    done = Done([], [], [])
    complete = False
    try:
        _hunt(options, chosen, done)
        complete = True
    finally:  # what was found before Ctrl-C is kept
        done.sort()
        whole = complete and not options.only and bool(done.planted)
        planted_report.show(done.planted, done.trials, whole, stream)
        if done.generic:
            _print_generic(done.generic, console(stream))
        if options.json:
            write_json(options.json, document(done, command, complete))
    sum_ = score.score([one.hunt for one in done.generic])
    short = planted_report.is_short(done.planted, done.trials, whole)
    return HARNESS if short or sum_.survivors else 0


@dataclass(frozen=True)
class Chosen:
    """What is to be hunted."""

    planted: list[planted_work.BugJob]
    trials: list[planted_work.TrialJob]
    generic: list[Job]

    def listed(self) -> list[str]:
        names = [job.name for job in (*self.planted, *self.trials, *self.generic)]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Done:
    """What became of it."""

    planted: list[planted_work.Row]
    trials: list[planted_work.Trial]
    generic: list[Killed]

    def sort(self) -> None:
        self.planted.sort(key=lambda one: one.name)
        self.trials.sort(key=lambda one: (one.name, one.fault))
        self.generic.sort(key=lambda one: one.hunt.name)


def _hunt(options: argparse.Namespace, chosen: Chosen, done: Done) -> None:
    """One kind after the other, each as it is done."""
    most = options.jobs or os.cpu_count() or 1
    with progress("planted bugs", len(chosen.planted), "hunted") as tell:
        for row in planted_work.run(chosen.planted, most):
            done.planted.append(row)
            tell(len(done.planted))
    with progress("exposed by a fault", len(chosen.trials), "trials") as tell:
        for trial in planted_work.each(planted_work.attempt, chosen.trials, most):
            done.trials.append(trial)
            tell(len(done.trials))
    if chosen.generic:
        with progress("generic mutants", len(chosen.generic), "hunted") as tell:
            for one in run(chosen.generic, min(most, len(chosen.generic))):
                done.generic.append(one)
                tell(len(done.generic))


def _chosen(options: argparse.Namespace) -> Chosen:
    """Raises CallerError where a name is that of nothing."""
    wanted = (options.kind,) if options.kind else KINDS
    seconds = float(options.seconds)
    bugs = planted_names() if {*wanted} & {"planted", "faults"} else []
    generic: list[Mutant] = []
    if "generic" in wanted:
        count = 0 if options.only else options.sample
        generic = score.sample(mutate.mutants(), count, options.seed)
    names = [*bugs, *(one.name for one in generic)]
    if options.only is not None:
        names = _exact(options.only, names)
    bugs = [name for name in bugs if name in names]
    return Chosen(
        [planted_work.BugJob(name, seconds, _OPERATIONS, options.shrink) for name in bugs]
        if "planted" in wanted
        else [],
        planted_work.trial_jobs(bugs, options.calm) if "faults" in wanted else [],
        [Job(one.name, one, seconds, _OPERATIONS) for one in generic if one.name in names],
    )


def _exact(only: str, names: list[str]) -> list[str]:
    exact = [name for name in names if name in (only, only.replace("_", "-"))]
    exact = exact or [name for name in names if name.startswith(only)]
    if not exact:
        raise CallerError(
            f"--only: expected a planted bug or a mutant, found {only!r}; "
            "hicache mutants --list has the names"
        )
    return exact


# -- what is said


def document(done: Done, command: str, complete: bool) -> dict[str, object]:
    """The kill matrix for other tools: the names in it are kept."""
    sum_ = score.score([one.hunt for one in done.generic])
    return {
        "version": VERSION,
        "command": command,
        "complete": complete,
        **planted_report.document(done.planted, done.trials),
        "generic": asdict(sum_) | {"by_kind": dict(sum_.by_kind), "rate": sum_.rate},
        "mutants": [_row(one) | {"differs": one.hunt.differs} for one in done.generic],
    }


def _row(one: Killed) -> dict[str, object]:
    found = one.hunt
    return {
        "name": found.name,
        "killed": found.killed,
        "code": found.code,
        "check": found.kind,
        "operations": found.operations,
        "sequences": found.sequences,
        "seed": found.seed,
        "seconds": round(one.seconds, 3),
    }


def _print_generic(generic: Sequence[Killed], out: object) -> None:
    sum_ = score.score([one.hunt for one in generic])
    differs = {one.hunt.name for one in generic if one.hunt.differs}
    rows = [
        ("mutants", f"{sum_.mutants:,}"),
        ("killed", f"{sum_.killed:,}, {percent(sum_.rate)} of those that are not equivalent"),
        ("equivalent, reviewed", f"{len(sum_.equivalent):,}"),
        ("survived", f"{len(sum_.survivors):,}, of them seen to differ: "
         f"{sum(name in differs for name in sum_.survivors):,}"),
    ]  # fmt: skip
    rows += [("killed by " + kind, f"{count:,}") for kind, count in sum_.by_kind[:12]]
    printed = out.print  # type: ignore[attr-defined]
    printed(pairs("generic mutants of hicache.core", rows))
    for name in sum_.survivors[:_SHOWN]:
        printed(f"  survived{' (differs)' if name in differs else ''}: {name}")
    if len(sum_.survivors) > _SHOWN:
        printed(f"  and {len(sum_.survivors) - _SHOWN:,} more: --json FILE has them all")
    for name in sum_.stale:
        printed(f"  on the list of equivalents, and killed: {name}")
