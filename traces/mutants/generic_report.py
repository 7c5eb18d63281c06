"""The results of a hunt for generic mutants: the table by module, the survivors, the JSON.

Does not hunt (see generic_work) or decide whether a mutant is killed (see invariants).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from invariants.mutants import mutate, score
from invariants.mutants.score import Count, Score

from ..terminal.tables import console, pairs, percent, table
from .limits import TimedHunt

_SHOWN = 40
_KINDS = 12


def summed(generic: Sequence[TimedHunt], whole: bool) -> Score:
    """The score. whole: all mutants were hunted, so a reviewed name that none has is stale."""
    known = [one.name for one in mutate.mutants()] if whole else None
    return score.score([one.hunt for one in generic], known=known)


def document(generic: Sequence[TimedHunt], sum_: Score) -> dict[str, object]:
    """The score as JSON values. Other programs read it: do not rename its keys."""
    return asdict(sum_) | {
        "by_kind": dict(sum_.by_kind),
        "rate": sum_.total.rate,
        "rate_by_checks": sum_.total.by_checks_alone,
        "not_reached": [one.hunt.name for one in generic if not one.hunt.reached],
    }


def whole_row(one: TimedHunt) -> dict[str, object]:
    """All fields of one mutant."""
    hunt = one.hunt
    found = {
        "name": hunt.name,
        "killed": hunt.killed,
        "code": hunt.code,
        "check": hunt.kind,
        "operations": hunt.operations,
        "sequences": hunt.sequences,
        "seed": hunt.seed,
        "seconds": round(one.seconds, 3),
    }
    return found | {"differs": hunt.differs, "reached": hunt.reached}


def show(
    generic: Sequence[TimedHunt],
    sum_: Score,
    left: int,
    stream: TextIO,
    title: str = "generic mutants of hicache.core",
) -> None:
    """Prints the table by module, the most frequent kinds of kills, and all open names.

    left: after an interrupt, the number of mutants without a result.
    """
    out = console(stream)
    by_module = table(
        title,
        "module", "mutants", "checks", "specification", "equivalent", "alive", "killed",
    )  # fmt: skip
    by_module.columns[0].no_wrap = True
    for module, count in (*sum_.by_module.items(), ("together", sum_.total)):
        by_module.add_row(module, *_cells(count))
    out.print(by_module)
    if left:
        out.print(f"  interrupted: {left:,} more are undecided and not counted")
    total = sum_.total
    rows = [("of those that are not equivalent, by checks", percent(total.by_checks_alone))]
    rows += [("by checks or the specification", percent(total.rate))]
    rows += [(f"killed by {kind}", f"{count:,}") for kind, count in sum_.by_kind[:_KINDS]]
    out.print(pairs("killed by", rows))
    hunts = {one.hunt.name: one.hunt for one in generic}
    for name in sum_.survivors[:_SHOWN]:
        hunt = hunts[name]
        how = " (differs)" if hunt.differs else "" if hunt.reached else " (not reached)"
        out.print(f"  alive{how}: {name}")
    if len(sum_.survivors) > _SHOWN:
        out.print(f"  and {len(sum_.survivors) - _SHOWN:,} more: --json FILE has them all")
    for name in sum_.stale:
        out.print(f"  stale line in the list of equivalents: {name}")


def _cells(count: Count) -> tuple[str, ...]:
    killed = count.by_checks, count.by_specification
    numbers = (count.mutants, *killed, count.equivalent, count.alive)
    return (*(f"{number:,}" for number in numbers), f"{count.rate * 100:.1f} %")
