"""What the hunts for planted bugs came to: the matrix, who is alone in noticing, the faults, JSON.

Lives here: words and numbers. Must not live here: hunting (planted_work), or what a bug is
(invariants).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from rich.table import Table

from invariants.base import check_names
from invariants.fuzz.faults.base import names as fault_names
from invariants.planted._kill import ALWAYS
from invariants.planted._review import Gaps, exposing, gaps, reviewed
from invariants.planted.base import load

from ..terminal.tables import console, pairs, table
from .planted_work import Row, Trial

_MARKS = 3  # of those that notice a bug, so many are named


def sole(rows: Sequence[Row]) -> dict[str, int]:
    """Checks that alone notice a bug, and how many each."""
    alone = Counter(row.noticed[0] for row in rows if len(row.noticed) == 1)
    return dict(sorted(alone.items()))


def strictly(rows: Sequence[Row]) -> dict[str, int]:
    """Those of `sole` whose bug nobody else notices in more sequences, either."""
    alone = Counter(
        row.noticed[0] for row in rows if row.others is not None and not row.others.check
    )
    return dict(sorted(alone.items()))


def bare_checks(rows: Sequence[Row]) -> Gaps:
    """Checks that are alone with none of the bugs."""
    return gaps(check_names(), sole(rows), reviewed("implied.txt"))


def bare_faults() -> Gaps:
    """Kinds of faults that no bug says it is exposed by."""
    return gaps(fault_names(), exposing(), reviewed("unexposed.txt"))


def is_short(rows: Sequence[Row], trials: Sequence[Trial], whole: bool) -> bool:
    """Whether something survived, or is not as its file says. whole: every bug was hunted, so what
    is on no list, or on a stale line of one, counts too."""
    if not all(row.killed for row in rows) or not all(trial.as_said for trial in trials):
        return True
    lists = [bare_checks(rows), bare_faults()] if whole and rows else []
    return any(one.missing or one.stale for one in lists)


# -- JSON


def document(rows: Sequence[Row], trials: Sequence[Trial]) -> dict[str, object]:
    """The kill matrix for other tools: the names in it are kept."""
    found: dict[str, object] = {"planted": [_row(row) for row in rows]}
    found |= {"sole_killers": sole(rows), "sole_in_more": strictly(rows)}
    if rows:
        found |= {"summary": _figures(rows), "checks_without": asdict(bare_checks(rows))}
    if trials:
        found |= {
            "trials": [asdict(trial) | {"as_said": trial.as_said} for trial in trials],
            "faults_without": asdict(bare_faults()),
        }
    return found


def _row(row: Row) -> dict[str, object]:
    bug = load(row.name)
    small = None if row.small is None else asdict(row.small)
    others = None if row.others is None else asdict(row.others)
    return {
        "name": row.name,
        "rows": list(bug.ROWS),
        "title": bug.TITLE,
        "killed": row.killed,
        "code": row.code,
        "check": row.check,
        "operations": row.operations,
        "sequences": row.sequences,
        "seed": row.seed,
        "seconds": round(row.seconds, 3),
        "noticed_by": list(row.noticed),
        "faults": list(getattr(bug, "FAULTS", ())),
        "others": others,
        "shrunk": small,
    }


def _figures(rows: Sequence[Row]) -> dict[str, object]:
    """The numbers of the whole, for reading at a glance."""
    times = [row.seconds for row in rows if row.killed]
    small = [row.small for row in rows if row.small is not None]
    found: dict[str, object] = {"bugs": len(rows), "killed": len(times)}
    if times:
        found |= {"median_s": round(statistics.median(times), 3), "longest_s": round(max(times), 3)}
    if small:
        found |= {
            "shrunk": len(small),
            "entries_before": statistics.median(one.before for one in small),
            "entries_after": statistics.median(one.after for one in small),
            "most_entries_after": max(one.after for one in small),
            "shrink_median_s": round(statistics.median(one.seconds for one in small), 1),
            "shrink_longest_s": round(max(one.seconds for one in small), 1),
            "not_finished": sum(not one.whole for one in small),
        }
    return found


# -- tables


def show(rows: Sequence[Row], trials: Sequence[Trial], whole: bool, stream: TextIO) -> None:
    out = console(stream)
    if rows:
        out.print(_matrix(rows))
        out.print(pairs("planted bugs, summary", _together(rows, whole)))
    if trials:
        out.print(_trials(trials))
        out.print(pairs("kinds of faults", _exposed(trials)))


def _matrix(rows: Sequence[Row]) -> Table:
    small = any(row.small is not None for row in rows)
    names = ["bug", "noticed by", "operations", "seconds", *["shrunk"] * small]
    shown = table("planted bugs", *names)
    shown.columns[0].no_wrap = True
    shown.columns[1].justify = "left"
    for row in rows:
        cells = [row.name, _noticed(row), f"{row.operations:,}", f"{row.seconds:.2f}"]
        if small:
            one = row.small
            cells.append("" if one is None else f"{one.before} to {one.after}")
        shown.add_row(*cells)
    return shown


def _noticed(row: Row) -> str:
    """The first to notice, and who else would."""
    if not row.killed:
        return "SURVIVED"
    first = row.check.lower()
    others = [name for name in row.noticed if name != first]
    named = ", ".join([row.check, *others[: _MARKS - 1]])
    more = len(others) - _MARKS + 1
    return f"{named} and {more} more" if more > 0 else named


def _together(rows: Sequence[Row], whole: bool) -> list[tuple[str, str]]:
    figures = _figures(rows)
    said = [("killed", f"{figures['killed']} of {figures['bugs']}")]
    if "median_s" in figures:
        said.append(("median, longest", f"{figures['median_s']} s, {figures['longest_s']} s"))
    if "shrunk" in figures:
        said += [
            ("shrunk, median", f"{figures['entries_before']} to {figures['entries_after']} entries,"
             f" at most {figures['most_entries_after']}"),
            ("time of shrinking", f"median {figures['shrink_median_s']} s, longest "
             f"{figures['shrink_longest_s']} s, stopped before the end "
             f"{figures['not_finished']}"),
        ]  # fmt: skip
    alone = ", ".join(f"{name} {count}" for name, count in sole(rows).items() if name != ALWAYS)
    said.append(("alone in noticing", alone or "none"))
    strict = ", ".join(f"{name} {count}" for name, count in strictly(rows).items())
    said.append(("  in more sequences, too", strict or "none"))
    if whole:
        said += _gaps("checks", bare_checks(rows))
    return said


def _gaps(what: str, found: Gaps) -> list[tuple[str, str]]:
    said = [(f"{what} without a bug", ", ".join(found.missing) or "none")]
    if found.listed:
        said.append(("  reviewed", ", ".join(found.listed)))
    if found.stale:
        said.append(("  listed, but wrong", ", ".join(found.stale)))
    return said


def _trials(trials: Sequence[Trial]) -> Table:
    shown = table("exposed by a fault", "bug", "with", "seen by", "sequences", "seconds")
    shown.columns[0].no_wrap = True
    shown.columns[1].justify = shown.columns[2].justify = "left"
    for trial in trials:
        shown.add_row(
            trial.name,
            trial.fault or "no fault",
            (trial.check or "nobody") + ("" if trial.as_said else " (NOT AS LISTED)"),
            f"{trial.sequences:,}",
            f"{trial.seconds:.2f}",
        )
    return shown


def _exposed(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    wrong = [trial for trial in trials if not trial.as_said]
    covered = len(dict.fromkeys(trial.fault for trial in trials if trial.fault and trial.as_said))
    said = [
        ("that expose a bug", f"{covered} of {len(fault_names())}"),
        ("trials", f"{len(trials):,}, different from the bug's file: {len(wrong)}"),
    ]
    return said + _gaps("kinds", bare_faults())
