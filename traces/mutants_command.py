"""`hicache mutants`: how good the harness is, measured on bugs that were put in on purpose.

Lives here: the command, its tables and its JSON. Must not live here: how a bug is put in or hunted
(invariants), or the processes that do it (mutants_work).

Exit codes: 0 everything was killed that is not on the reviewed list, 17 something survived.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from hicache.core.errors import CallerError
from invariants.base import HARNESS
from invariants.fuzz import mutate, score
from invariants.planted.base import names as planted_names

from . import options as read
from .mutants_work import Job, Killed, run
from .output import check_writable
from .results import write_json
from .tables import console, pairs, percent, table

SUMMARY = "plant bugs in the core, and report what kills each and how fast"
KINDS = ("generic", "planted")
VERSION = 1
_OPERATIONS = 120
_SHOWN = 40
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
    add("--seconds", type=read.at_least(1), default=60, metavar="S", help="for each that survives")
    add("--jobs", type=read.at_least(1), metavar="N", help="workers (default: every core)")
    add("--json", metavar="FILE", help="write the kill matrix there, too; - is stdout")
    add("--list", action="store_true", help="print the names, and hunt nothing")


def mutants(options: argparse.Namespace, command: str) -> int:
    """Hunts what was chosen. 0 where all are dead but the reviewed, 17 where not."""
    jobs = _chosen(options)
    stream = sys.stderr if options.json == "-" else sys.stdout
    if options.list:
        for job in jobs:
            print(job.name)
        return 0
    if options.json:
        check_writable(options.json)
    done: list[Killed] = []
    complete = False
    try:
        for one in run(jobs, min(options.jobs or os.cpu_count() or 1, len(jobs))):
            done.append(one)
            _progress(len(done), len(jobs), one)
        complete = True
    finally:  # what was found before Ctrl-C is kept
        done.sort(key=lambda one: one.hunt.name)
        planted, generic = _split(done)
        _print(planted, generic, stream)
        if options.json:
            write_json(options.json, document(planted, generic, command, complete))
    sum_ = score.score([one.hunt for one in generic])
    alive = [one for one in planted if not one.hunt.killed]
    return HARNESS if alive or sum_.survivors else 0


def _chosen(options: argparse.Namespace) -> list[Job]:
    """Raises CallerError where a name is that of nothing."""
    wanted = (options.kind,) if options.kind else KINDS
    seconds, jobs = float(options.seconds), []
    if "planted" in wanted:
        jobs += [Job(name, None, seconds, _OPERATIONS) for name in planted_names()]
    if "generic" in wanted:
        drawn = score.sample(mutate.mutants(), 0 if options.only else options.sample, options.seed)
        jobs += [Job(one.name, one, seconds, _OPERATIONS) for one in drawn]
    if options.only is None:
        return jobs
    exact = [job for job in jobs if job.name == options.only.replace("_", "-")]
    exact = exact or [job for job in jobs if job.name == options.only]
    exact = exact or [job for job in jobs if job.name.startswith(options.only)]
    if not exact:
        raise CallerError(
            f"--only: expected a planted bug or a mutant, found {options.only!r}; "
            "hicache mutants --list has the names"
        )
    return exact


def _split(done: Sequence[Killed]) -> tuple[list[Killed], list[Killed]]:
    known = planted_names()
    planted = [one for one in done if one.hunt.name in known]
    return planted, [one for one in done if one.hunt.name not in known]


def _progress(count: int, whole: int, one: Killed) -> None:
    if sys.stderr.isatty():
        end = "\n" if count == whole else "\r"
        print(f"\x1b[2K{count} of {whole}  {one.hunt.name}"[:100], end=end, file=sys.stderr)


# -- what is said


def document(
    planted: Sequence[Killed], generic: Sequence[Killed], command: str, complete: bool
) -> dict[str, object]:
    """The kill matrix for other tools: the names in it are kept."""
    sum_ = score.score([one.hunt for one in generic])
    return {
        "version": VERSION,
        "command": command,
        "complete": complete,
        "planted": [_row(one) | _planted(one) for one in planted],
        "sole_killers": sole(planted),
        "generic": asdict(sum_) | {"by_kind": dict(sum_.by_kind), "rate": sum_.rate},
        "mutants": [_row(one) | {"differs": one.hunt.differs} for one in generic],
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


def _print(planted: Sequence[Killed], generic: Sequence[Killed], stream: object) -> None:
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
    if generic:
        _print_generic(generic, out)


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
