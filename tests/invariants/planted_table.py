"""The table of docs/planted.md: what finds each planted bug first, how soon, and what else would.

    python -m tests.invariants.planted_table [NAME...] > docs/planted.md

Lives here: measuring and printing. Must not live here: any verdict about a bug.
"""

from __future__ import annotations

import sys
import time

from invariants.base import check_names
from invariants.planted.base import load, names
from invariants.planted.kill import hunt

MOST, MORE = 1500, 30  # sequences to find it in at all, and without the check that was first
HEAD = """# Planted bugs

One file each in `invariants/planted/`. *Operations*: events fed to cores, over all sequences, until
the first finding; *seconds*: of one core. *Without it*: what finds the bug in the first {more}
sequences if the check that was first is not asked; where that is nothing, only this check finds it
that soon. Made by `python -m tests.invariants.planted_table`.

| bug | rows | found by | operations | seconds | without it |
|---|---|---|---|---|---|"""


def row(name: str) -> str:
    rows = ", ".join(load(name).ROWS) or "-"
    begun = time.process_time()
    found = hunt(name, range(MOST))
    took = time.process_time() - begun
    if found.failure is None:
        return f"| {name} | {rows} | **survived** | {found.operations} | {took:.1f} | |"
    first = found.failure.kind.lower()
    without = ""
    if first in check_names():
        others = [one for one in check_names() if one != first]
        rest = hunt(name, range(MORE), checks=others)
        without = rest.failure.kind if rest.failure is not None else "nothing"
    kind = found.failure.kind
    return f"| {name} | {rows} | {kind} | {found.operations} | {took:.1f} | {without} |"


def main(asked: list[str]) -> None:
    print(HEAD.format(more=MORE))
    for name in asked or names():
        print(row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
