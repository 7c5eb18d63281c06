"""What a hunt for generic mutants came to: the table by module, who survived, the JSON.

Lives here: words and numbers. Must not live here: hunting (generic_work) or verdicts (invariants).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from invariants.mutants import mutate, score
from invariants.mutants.score import Count, Score

from ..terminal.tables import console, pairs, percent, table
from .limits import Killed

_SHOWN = 40
_KINDS = 12


def summed(generic: Sequence[Killed], whole: bool) -> Score:
    """whole: every mutant was hunted, so a listed name that is none of theirs is stale."""
    known = [one.name for one in mutate.mutants()] if whole else None
    return score.score([one.hunt for one in generic], known=known)


def document(generic: Sequence[Killed], sum_: Score) -> dict[str, object]:
    """The score for other tools: the names in it are kept."""
    return asdict(sum_) | {
        "by_kind": dict(sum_.by_kind),
        "rate": sum_.total.rate,
        "rate_by_checks": sum_.total.by_checks_alone,
        "not_reached": [one.hunt.name for one in generic if not one.hunt.reached],
    }


def row(one: Killed) -> dict[str, object]:
    """What is said of one mutant alone."""
    found = one.hunt
    return {"differs": found.differs, "reached": found.reached, "decisions": found.decisions}


def show(generic: Sequence[Killed], sum_: Score, left: int, stream: TextIO) -> None:
    """The table by module, what killed most, and every name that somebody has to look at. left:
    how many nobody has decided on, where the hunt was interrupted."""
    out = console(stream)
    shown = table(
        "generic mutants of hicache.core",
        "module", "mutants", "checks", "decisions", "equivalent", "alive", "killed",
    )  # fmt: skip
    shown.columns[0].no_wrap = True
    for module, count in (*sum_.by_module.items(), ("together", sum_.total)):
        shown.add_row(module, *_cells(count))
    out.print(shown)
    if left:
        out.print(f"  interrupted: {left:,} more are undecided and not counted")
    total = sum_.total
    rows = [("of those that are not equivalent, by checks", percent(total.by_checks_alone))]
    rows += [("by checks or recorded decisions", percent(total.rate))]
    rows += [(f"killed by {kind}", f"{count:,}") for kind, count in sum_.by_kind[:_KINDS]]
    out.print(pairs("killed by", rows))
    hunts = {one.hunt.name: one.hunt for one in generic}
    for name in sum_.survivors[:_SHOWN]:
        found = hunts[name]
        how = " (differs)" if found.differs else "" if found.reached else " (not reached)"
        out.print(f"  alive{how}: {name}", markup=False)
    if len(sum_.survivors) > _SHOWN:
        out.print(f"  and {len(sum_.survivors) - _SHOWN:,} more: --json FILE has them all")
    for name in sum_.stale:
        out.print(f"  stale line in the list of equivalents: {name}", markup=False)


def _cells(count: Count) -> tuple[str, ...]:
    numbers = (count.mutants, count.by_checks, count.by_decisions, count.equivalent, count.alive)
    return (*(f"{number:,}" for number in numbers), f"{count.rate * 100:.1f} %")
