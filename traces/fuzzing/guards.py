"""Guards that seldom decide: the table and the JSON of `hicache fuzz --reach`.

Does not weigh guards (see invariants/mutants/weak).
"""

from __future__ import annotations

from typing import TextIO

from invariants.mutants import weak

from ..terminal.tables import console, pairs, table
from .report import Tally

PER = 20_000  # events
_SHOWN = 60


def document(tally: Tally) -> list[dict[str, object]]:
    """Every change of a guard, the rarest first. Other programs read it: do not rename its keys."""
    known, rows = weak.reviewed(), []
    for guard in weak.guards().values():
        for name, _ in guard.changed:
            rows.append(
                {
                    "guard": name,
                    "where": guard.where,
                    "text": guard.text,
                    "evaluated": tally.evaluated[name],
                    "otherwise": tally.otherwise[name],
                    "reviewed": known.get(name),
                }
            )
    return sorted(rows, key=lambda row: (row["otherwise"], row["evaluated"], row["guard"]))


def rare(tally: Tally) -> list[dict[str, object]]:
    """The changes that decide otherwise in fewer than one of `PER` events, and are not reviewed."""
    return [
        row
        for row in document(tally)
        if tally.otherwise[str(row["guard"])] * PER < tally.events and row["reviewed"] is None
    ]


def show(tally: Tally, stream: TextIO) -> None:
    """Prints the summary, and what decides too seldom."""
    rows, left, known = document(tally), rare(tally), weak.reviewed()
    names = {row["guard"] for row in rows}
    decided = {name for name, count in tally.otherwise.items() if count}
    totals = [
        ("conditions and comparisons of guards", f"{len(rows):,}"),
        (f"that decide in fewer than 1 of {PER:,} events", f"{len(left):,}"),
        ("reviewed: cannot decide", f"{len(known):,}"),
    ]
    totals += [("reviewed, and did decide", name) for name in sorted(known.keys() & decided)]
    gone = sorted(known.keys() - names)
    totals += [("reviewed, and no guard any more", name) for name in gone]
    out = console(stream)
    out.print(pairs("Guards", totals))
    result = table("Guards that seldom decide", "place", "evaluated", "otherwise", "guard")
    for row in left[:_SHOWN]:
        numbers = f"{row['evaluated']:,}", f"{row['otherwise']:,}"
        result.add_row(str(row["where"]), *numbers, str(row["guard"]))
    if len(left) > _SHOWN:
        result.add_row(f"and {len(left) - _SHOWN:,} more", "", "", "")
    out.print(result)
