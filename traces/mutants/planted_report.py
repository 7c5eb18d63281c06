"""The results of the hunts for planted bugs: the kill matrix, faults, JSON.

Does not hunt (see planted_work) or define bugs (see invariants/planted).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from rich.table import Table

from invariants.fuzz.faults.base import names as fault_names
from invariants.planted._exposed import gaps
from invariants.planted.base import load

from ..terminal.tables import console, pairs, table
from .planted_work import Row, Trial

_MOST_NAMED = 3


def has_gaps(rows: Sequence[Row], trials: Sequence[Trial], whole: bool) -> bool:
    """Whether a bug survived, or is wrong about a fault.

    whole: every bug was hunted, so missing and stale names of the reviewed list count, too.
    """
    if not all(row.killed for row in rows) or not all(trial.as_expected for trial in trials):
        return True
    kinds = gaps()
    return whole and bool(rows) and bool(kinds.missing or kinds.stale)


# -- JSON


def document(rows: Sequence[Row], trials: Sequence[Trial]) -> dict[str, object]:
    """The kill matrix as JSON values. Other programs read it: do not rename its keys."""
    result: dict[str, object] = {"planted": [_row(row) for row in rows]}
    if rows:
        result["summary"] = _figures(rows)
    if trials:
        result |= {
            "trials": [asdict(trial) | {"as_said": trial.as_expected} for trial in trials],
            "faults_without": gaps()._asdict(),
        }
    return result


def _row(row: Row) -> dict[str, object]:
    bug = load(row.name)
    small = None if row.small is None else asdict(row.small)
    return {
        "name": row.name,
        "rows": list(bug.rows),
        "title": bug.title,
        "killed": row.killed,
        "code": row.code,
        "check": row.check,
        "events": row.events,
        "sequences": row.sequences,
        "seed": row.seed,
        "seconds": round(row.seconds, 3),
        "by_checks": row.by_checks,
        "by_specification": row.by_specification,
        "faults": list(bug.faults),
        "shrunk": small,
    }


def _figures(rows: Sequence[Row]) -> dict[str, object]:
    """Totals and medians over all bugs."""
    times = [row.seconds for row in rows if row.killed]
    events = [row.events for row in rows if row.killed]
    small = [row.small for row in rows if row.small is not None]
    result: dict[str, object] = {"bugs": len(rows), "killed": len(times)}
    result["by_checks"] = sum(row.by_checks for row in rows)
    result["by_specification"] = sum(row.by_specification for row in rows)
    if times:
        result |= {
            "median_events": round(statistics.median(events)),
            "most_events": max(events),
            "median_s": round(statistics.median(times), 3),
            "longest_s": round(max(times), 3),
        }
    if small:
        result |= {
            "shrunk": len(small),
            "entries_before": statistics.median(one.before for one in small),
            "entries_after": statistics.median(one.after for one in small),
            "most_entries_after": max(one.after for one in small),
            "shrink_median_s": round(statistics.median(one.seconds for one in small), 1),
            "shrink_longest_s": round(max(one.seconds for one in small), 1),
            "not_finished": sum(not one.whole for one in small),
        }
    return result


# -- tables


def show(rows: Sequence[Row], trials: Sequence[Trial], stream: TextIO) -> None:
    out = console(stream)
    if rows:
        out.print(_matrix(rows))
    if trials:
        out.print(_trials(trials))
        out.print(pairs("kinds of faults", _exposed(trials)))


def conclusions(rows: Sequence[Row]) -> list[str]:
    """What the hunts for planted bugs mean, in plain words."""
    if not rows:
        return []
    figures = _figures(rows)
    bugs = "bug was" if figures["bugs"] == 1 else "bugs were"
    told = [f"{figures['killed']} of {figures['bugs']} planted {bugs} found."]
    if "median_s" in figures and len(rows) > 1:
        told.append(
            f"Half of those found took at most {figures['median_events']:,} events and "
            f"{figures['median_s']} s, the longest {figures['most_events']:,} events and "
            f"{figures['longest_s']} s."
        )
    if "shrunk" in figures and len(rows) > 1:
        told.append(
            f"Tapes were shrunk from {figures['entries_before']} to {figures['entries_after']} "
            f"entries (median), to at most {figures['most_entries_after']}, in "
            f"{figures['shrink_median_s']} s (median), the longest in "
            f"{figures['shrink_longest_s']} s; {figures['not_finished']} were not finished."
        )
    told.append(
        f"The specification alone notices the tapes of {figures['by_specification']}, the checks "
        f"alone those of {figures['by_checks']}."
    )
    if left := [row.name for row in rows if not row.killed]:
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        told.append(f"Nothing sees {', '.join(left[:_MOST_NAMED])}{more}.")
    return told


def _matrix(rows: Sequence[Row]) -> Table:
    small = any(row.small is not None for row in rows)
    names = ["bug", "found by", "alone", "events", "seconds", *["shrunk"] * small]
    result = table("planted bugs", *names)
    result.columns[0].no_wrap = True
    result.columns[1].justify = result.columns[2].justify = "left"
    for row in rows:
        cells = [
            row.name,
            row.check or "SURVIVED",
            _alone(row),
            f"{row.events:,}",
            f"{row.seconds:.2f}",
        ]
        if small:
            one = row.small
            cells.append("" if one is None else f"{one.before} to {one.after}")
        result.add_row(*cells)
    return result


def _alone(row: Row) -> str:
    """Who notices the failing tape alone."""
    who = {"checks": row.by_checks, "specification": row.by_specification}
    return ", ".join(name for name, noticed in who.items() if noticed)


def _trials(trials: Sequence[Trial]) -> Table:
    result = table("exposed by a fault", "bug", "with", "seen by", "sequences", "seconds")
    result.columns[0].no_wrap = True
    result.columns[1].justify = result.columns[2].justify = "left"
    for trial in trials:
        result.add_row(
            trial.name,
            trial.fault or "no fault",
            (trial.check or "nobody") + ("" if trial.as_expected else " (NOT AS LISTED)"),
            f"{trial.sequences:,}",
            f"{trial.seconds:.2f}",
        )
    return result


def _exposed(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    wrong = [trial for trial in trials if not trial.as_expected]
    covered = {trial.fault for trial in trials if trial.fault and trial.as_expected}
    kinds = gaps()
    rows = [
        ("that expose a bug", f"{len(covered)} of {len(fault_names())}"),
        ("trials", f"{len(trials):,}, different from what the bug says: {len(wrong)}"),
        ("without a bug", ", ".join(kinds.missing) or "none"),
        ("  reviewed", ", ".join(kinds.listed)),
        ("  listed, but wrong", ", ".join(kinds.stale)),
    ]
    return [row for row in rows if row[1]]
