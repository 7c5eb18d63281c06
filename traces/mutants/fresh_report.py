"""The results of hunts for drawn bugs: the score with its interval, the survivors, the JSON.

Does not hunt (see fresh_work) or decide whether a bug is killed (see invariants/fresh).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import TextIO

from invariants.base import CRASH

from ..terminal.tables import console, pairs, percent, table
from .fresh_work import Row

_REASONS = 12
_Z95 = 1.959963984540054  # 97.5 % of a normal distribution lie below


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95 % interval of the probability of a hit (Wilson's score interval). With no tries,
    nothing is known: 0 to 1."""
    if not 0 <= hits <= tries:
        raise ValueError(f"expected 0 to {tries} hits, found {hits}")
    if not tries:
        return 0.0, 1.0
    square = _Z95 * _Z95
    middle = (hits + square / 2) / (tries + square)
    half = _Z95 / (tries + square) * sqrt(hits * (tries - hits) / tries + square / 4)
    # exact at the ends, where rounding would leave a little
    return (middle - half if hits else 0.0), (middle + half if hits < tries else 1.0)


def document(rows: Sequence[Row], asked: int, seed: int, budget_s: int) -> dict[str, object]:
    """The results as JSON values. Other programs read them: do not rename their keys."""
    times = [row.seconds for row in rows if row.verdict.killed]
    least, most = wilson(_killed(rows), len(rows))
    return {
        "fresh": [_row(row) for row in rows],
        "fresh_score": {
            "seed": seed,
            "budget_s": budget_s,
            "asked": asked,
            "hunted": len(rows),
            "killed": _killed(rows),
            "crashed": _crashed(rows),
            "rate": _killed(rows) / len(rows) if rows else None,
            "rate_least": least,
            "rate_most": most,
            "median_s": round(statistics.median(times), 3) if times else None,
            "longest_s": round(max(times), 3) if times else None,
            "by": dict(_reasons(rows)),
            "edits": {
                name: {"bugs": bugs, "killed": killed} for name, bugs, killed in _by_edit(rows)
            },
        },
    }


def _row(row: Row) -> dict[str, object]:
    bug, verdict, traces = row.bug, row.verdict, row.traces
    return {
        "name": bug.name,
        "number": bug.number,
        "edit": " + ".join(bug.edits),
        "file": bug.file,
        "function": bug.place[0],
        "line": bug.lines[0][0],
        "diff": bug.diff(),
        "killed": verdict.killed,
        "code": verdict.code,
        "by": verdict.by,
        "on": verdict.on,
        "sequences": verdict.sequences,
        "not_counted": verdict.not_counted,
        "seconds": round(row.seconds, 3),
        "compared": traces.compared if traces is not None else None,
        "reached": traces.reached if traces is not None else None,
        "differs": traces.differs if traces is not None else None,
        "differs_beside_pages": traces.beside_pages if traces is not None else None,
    }


def _killed(rows: Sequence[Row]) -> int:
    return sum(row.verdict.killed for row in rows)


def _crashed(rows: Sequence[Row]) -> int:
    """How many were killed by an error of Python, which any test that runs the line would show."""
    asserted = ("CoreBug ", "AssertionError ")
    return sum(
        row.verdict.code == CRASH and not row.verdict.by.startswith(asserted) for row in rows
    )


def _reasons(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """How many bugs each reason killed, the most frequent first."""
    count = Counter(row.verdict.by for row in rows if row.verdict.killed)
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))


def _by_edit(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """By kind of edit: bugs with such an edit, and how many of them were killed."""
    bugs, killed = Counter[str](), Counter[str]()
    for row in rows:
        for name in dict.fromkeys(row.bug.edits):
            bugs[name] += 1
            killed[name] += row.verdict.killed
    return [(name, bugs[name], killed[name]) for name in sorted(bugs)]


def show(rows: Sequence[Row], asked: int, seed: int, stream: TextIO) -> None:
    """Prints the table by kind of edit, the reasons, every survivor, and the score."""
    out = console(stream)
    by_edit = table("drawn bugs, by kind of edit", "edit", "bugs", "killed", "alive")
    for name, bugs, killed in _by_edit(rows):
        by_edit.add_row(name, str(bugs), str(killed), str(bugs - killed))
    out.print(by_edit)
    reasons = _reasons(rows)
    shown = [(name, str(count)) for name, count in reasons[:_REASONS]]
    if rest := sum(count for _, count in reasons[_REASONS:]):
        shown.append((f"{len(reasons) - _REASONS} other reasons", str(rest)))
    out.print(pairs("killed by", shown))
    for row in rows:
        if not row.verdict.killed:
            for line in _survivor(row, asked, seed):
                out.print(line, soft_wrap=True)


def _survivor(row: Row, asked: int, seed: int) -> list[str]:
    bug, traces = row.bug, row.traces
    found = [f"\n  alive: {bug.name}, {' + '.join(bug.edits)}, {bug.file}:{bug.lines[0][0]}"]
    if traces is not None:
        found.append(
            f"  its line runs in {traces.reached} of {traces.compared} sequences; decisions "
            f"differ in {traces.differs}, page numbers aside in {traces.beside_pages}"
        )
    found.append(f"  hicache mutants --fresh {asked} --seed {seed} --only {bug.number}")
    return [*found, *(f"    {line}" for line in bug.diff())]


def conclusions(rows: Sequence[Row], left: int, budget_s: int) -> list[str]:
    """What the hunts mean, in plain words. left: after an interrupt, bugs without a result."""
    if not rows:
        return ["No drawn bug has a result yet."]
    killed = _killed(rows)
    least, most = wilson(killed, len(rows))
    told = [
        f"{killed} of {len(rows)} drawn bugs were found in at most {budget_s} s of one core each: "
        f"{percent(killed / len(rows), 1)}.",
        f"With 95 % confidence, the share of all such bugs is from {percent(least, 1)} to "
        f"{percent(most, 1)}. Survivors that change nothing count as not found.",
    ]
    if crashed := _crashed(rows):
        rest = len(rows) - crashed
        share = f": {percent((killed - crashed) / rest, 1)}" if rest else ""
        told.append(
            f"{crashed} ended in an error of Python (a KeyError, a TypeError). Without these, "
            f"{killed - crashed} of {rest} were found{share}."
        )
    if times := [row.seconds for row in rows if row.verdict.killed]:
        told.append(f"Half of those found took at most {statistics.median(times):.2f} s.")
    if idle := [row for row in rows if row.traces is not None and not row.traces.differs]:
        told.append(
            f"{len(idle)} of the {len(rows) - killed} that are left changed no decision in the "
            "compared sequences."
        )
    if doubtful := sum(row.verdict.not_counted for row in rows):
        told.append(
            f"{doubtful} sequences failed without a bug, too, and did not count; run hicache fuzz."
        )
    if left:
        told.append(
            f"Interrupted: {left} have no result. Survivors take longest, so the share is too high."
        )
    return told
