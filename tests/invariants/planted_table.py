"""The tables of docs/planted.md, from the kill matrix that `hicache mutants` writes.

    hicache mutants --kind planted --shrink --json kill.json
    python -m tests.invariants.planted_table kill.json > docs/planted.md

Lives here: printing. Must not live here: measuring, or any verdict about a bug.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invariants.planted._review import reviewed
from invariants.planted.base import load, names

SHOWN = 4
HEAD = """# Planted bugs

Each file of `invariants/planted/` has the bugs of one module, or of a few. *Events* is the number
of events, over all sequences, until the bug was first found; seconds are those of one machine.
*Noticed by* names the check that found it first, and then the other checks that notice the same
tape when they run alone. *content and asserts* stands for what always runs: the comparison of
bytes, the core's own asserts, the end of the run. *Shrunk* is the number of entries of the tape
before and after. The tables are made from the matrix of `hicache mutants`:

    hicache mutants --kind planted --shrink --json kill.json
    python -m tests.invariants.planted_table kill.json > docs/planted.md

| bug | rows | noticed by | events | seconds | shrunk |
|---|---|---|---|---|---|"""
FAULTS = """
## Exposed by a fault

Each of these bugs is found in sequences whose only faults are of the given kinds, and not in
sequences without faults (`invariants/planted/_exposed.py`). Kinds that expose no bug: {bare}.

| bug | kinds |
|---|---|"""


def row(found: dict[str, Any]) -> str:
    rows, small = ", ".join(found["rows"]) or "-", found["shrunk"]
    sizes = f"{small['before']} to {small['after']}" if small else "-"
    return (
        f"| {found['name']} | {rows} | {noticed(found)} | {found['events']} | "
        f"{found['seconds']:.1f} | {sizes} |"
    )


def noticed(found: dict[str, Any]) -> str:
    if not found["killed"]:
        return "**survived**"
    others = [name for name in found["noticed_by"] if name != found["check"].lower()]
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return ", ".join([f"**{found['check']}**", *others[:SHOWN]]) + more


def lines(matrix: dict[str, Any]) -> Iterator[str]:
    yield HEAD
    yield from map(row, matrix["planted"])
    yield FAULTS.format(bare=", ".join(reviewed("unexposed.txt")) or "none")
    for name in names():
        kinds = load(name).faults
        if kinds:
            yield f"| {name} | {', '.join(kinds)} |"


if __name__ == "__main__":
    print("\n".join(lines(json.loads(Path(sys.argv[1]).read_text()))))
