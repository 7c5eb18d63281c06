"""`hicache mutants`: how good the harness is, measured on bugs that were put in on purpose.

Lives here: the command, its tables and its JSON. Must not live here: how a bug is put in or hunted
(invariants), the processes that do it (mutants_work, generic_work), or what is said of generic
mutants (generic_report).

Exit codes: 0 everything was killed that is not on the reviewed list, 17 something survived.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import Counter
from collections.abc import Sequence

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.fuzz import mutate, score
from invariants.fuzz.mutate import Mutant
from invariants.fuzz.score import Score
from invariants.planted.base import names as planted_names

from . import generic_report, generic_work
from . import options as read
from .mutants_work import Job, Killed, run
from .output import check_writable
from .results import write_json
from .tables import console, pairs, table

SUMMARY = "plant bugs in the core, and report what kills each and how fast"
KINDS = ("generic", "planted")
VERSION = 2
_OPERATIONS = 120
_FEW, _FEW_TAPES = 40, 24  # so many mutants do not pay for a long survey
_ALWAYS = "content, asserts"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--kind", type=read.choice(KINDS), help="planted bugs or generic mutants (default: both)")
    add("--only", metavar="NAME", help="one bug, one mutant, or all that begin so")
    add(
        "--sample",
        type=read.at_least(0),
        default=0,
        metavar="N",
        help="so many mutants (default: all)",
    )
    add("--seed", type=read.at_least(0), default=0, help="of the sample")
    add(
        "--seconds",
        type=read.at_least(1),
        default=60,
        metavar="S",
        help="for each that survives (a generic mutant: at most 20)",
    )
    add("--jobs", type=read.at_least(1), metavar="N", help="workers (default: every core)")
    add("--json", metavar="FILE", help="write the kill matrix there, too; - is stdout")
    add("--record", action="store_true", help="write the recorded tapes with today's decisions")
    add("--list", action="store_true", help="print the names, and hunt nothing")


def mutants(options: argparse.Namespace, command: str) -> int:
    """Hunts what was chosen. 0 where all are dead but the reviewed, 17 where not."""
    if options.record:
        for path in generic_work.record():
            print(path)
        return 0
    jobs, drawn = _chosen(options)
    stream = sys.stderr if options.json == "-" else sys.stdout
    if options.list:
        for name in (*(job.name for job in jobs), *(one.name for one in drawn)):
            print(name)
        return 0
    if options.json:
        check_writable(options.json)
    planted: list[Killed] = []
    generic: list[Killed] = []
    whole = not options.only and not options.sample
    complete = False
    try:
        _hunt(options, jobs, drawn, planted, generic)
        complete = True
    finally:  # what was found before Ctrl-C is kept
        planted.sort(key=lambda one: one.hunt.name)
        sum_ = generic_report.summed(generic, whole and complete)
        _print(planted, stream)
        if generic:
            generic_report.show(generic, sum_, len(drawn) - len(generic), stream)
        if options.json:
            write_json(options.json, document(planted, generic, sum_, command, complete))
    alive = [one for one in planted if not one.hunt.killed]
    return HARNESS if alive or sum_.survivors or sum_.stale else 0


def _hunt(
    options: argparse.Namespace,
    jobs: Sequence[Job],
    drawn: Sequence[Mutant],
    planted: list[Killed],
    generic: list[Killed],
) -> None:
    """Planted bugs, then mutants; both as they are done."""
    most = options.jobs or os.cpu_count() or 1
    if jobs:
        for one in run(jobs, min(most, len(jobs))):
            planted.append(one)
            _progress(len(planted), len(jobs), one)
    if drawn:
        few = len(drawn) <= _FEW
        with generic_work.surveyed(_FEW_TAPES if few else generic_work.EACH):
            for one in generic_work.run(drawn, float(options.seconds), min(most, len(drawn))):
                generic.append(one)
                _progress(len(generic), len(drawn), one)
        order = {one.name: at for at, one in enumerate(drawn)}
        generic.sort(key=lambda one: order[one.hunt.name])


def _chosen(options: argparse.Namespace) -> tuple[list[Job], list[Mutant]]:
    """Raises CallerError where a name is that of nothing."""
    wanted = (options.kind,) if options.kind else KINDS
    jobs: list[Job] = []
    drawn: list[Mutant] = []
    if "planted" in wanted:
        jobs = [Job(name, float(options.seconds), _OPERATIONS) for name in planted_names()]
    if "generic" in wanted:
        count = 0 if options.only else options.sample
        drawn = score.sample(mutate.mutants(), count, options.seed)
    if options.only is None:
        return jobs, drawn
    names = [one.name for one in (*jobs, *drawn)]
    asked = (options.only.replace("_", "-"), options.only)
    exact = [name for name in names if name in asked]
    exact = exact or [name for name in names if name.startswith(options.only)]
    if not exact:
        raise CallerError(
            f"--only: expected a planted bug or a mutant, found {options.only!r}; "
            "hicache mutants --list has the names"
        )
    kept = dict.fromkeys(exact)
    return [one for one in jobs if one.name in kept], [one for one in drawn if one.name in kept]


def _progress(count: int, whole: int, one: Killed) -> None:
    if sys.stderr.isatty():
        end = "\n" if count == whole else "\r"
        print(f"\x1b[2K{count} of {whole}  {one.hunt.name}"[:100], end=end, file=sys.stderr)


# -- what is said


def document(
    planted: Sequence[Killed],
    generic: Sequence[Killed],
    sum_: Score,
    command: str,
    complete: bool,
) -> dict[str, object]:
    """The kill matrix for other tools: the names in it are kept."""
    return {
        "version": VERSION,
        "command": command,
        "complete": complete,
        "planted": [_row(one) | _planted(one) for one in planted],
        "sole_killers": sole(planted),
        "generic": generic_report.document(generic, sum_),
        "mutants": [_row(one) | generic_report.row(one) for one in generic],
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


def _planted(one: Killed) -> dict[str, object]:
    checks = [name or _ALWAYS for name in one.checks]
    return {"rows": list(one.rows), "title": one.title, "noticed_by": checks}


def sole(planted: Sequence[Killed]) -> dict[str, int]:
    """Checks that alone notice a bug, and how many each."""
    alone = Counter(one.checks[0] or _ALWAYS for one in planted if len(one.checks) == 1)
    return dict(sorted(alone.items()))


def _print(planted: Sequence[Killed], stream: object) -> None:
    out = console(stream)  # type: ignore[arg-type]
    if planted:
        shown = table("planted bugs", "bug", "killed by", "also", "operations", "seconds")
        shown.columns[0].no_wrap = True
        for one in planted:
            found = one.hunt
            also = max(0, len(one.checks) - 1)
            shown.add_row(
                found.name,
                found.kind or "SURVIVED",
                str(also) if found.killed else "",
                f"{found.operations:,}",
                f"{one.seconds:.2f}",
            )
        out.print(shown)
        times = [one.seconds for one in planted if one.hunt.killed]
        spent = f"{statistics.median(times):.2f} s, {max(times):.2f} s" if times else "none"
        alone = ", ".join(f"{name} {count}" for name, count in sole(planted).items())
        out.print(
            pairs(
                "planted bugs, together",
                [
                    ("killed", f"{len(times)} of {len(planted)}"),
                    ("median, longest", spent),
                    ("noticed by one check alone", alone or "none"),
                ],
            )
        )
