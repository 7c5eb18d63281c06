"""The tables of docs/planted.md, from the kill matrix that `hicache mutants` writes.

    hicache mutants --kind planted --json kill.json
    python -m tests.invariants.planted_table kill.json > docs/planted.md

Lives here: printing. Must not live here: measuring, or any verdict about a bug.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invariants.planted._review import listed
from invariants.planted.base import load, names

HEAD = """# Planted bugs

Each file of `invariants/planted/` has the bugs of one module, or of a few. *Found by* names what
found the bug first: a check, the specification (SPEC and what differs), an assert of the core, the
comparison of bytes, or the end of the run. *Alone* says who else notices the same tape alone: the
checks, the specification, or both. *Events* is the number of events, over all sequences, until the
bug was found. The tables are made from the matrix of `hicache mutants`:

    hicache mutants --kind planted --json kill.json
    python -m tests.invariants.planted_table kill.json > docs/planted.md

| bug | rows | found by | alone | events |
|---|---|---|---|---|"""
FAULTS = """
## Exposed by a fault

Each of these bugs is found in sequences whose only faults are of the given kinds, and not in
sequences without faults (`invariants/planted/_exposed.py`). Kinds that expose no bug: {bare}.

| bug | kinds |
|---|---|"""


def row(found: dict[str, Any]) -> str:
    rows = ", ".join(found["rows"]) or "-"
    alone = [name for name in ("checks", "specification") if found[f"by_{name}"]]
    check = found["check"] if found["killed"] else "**survived**"
    return f"| {found['name']} | {rows} | {check} | {', '.join(alone) or '-'} | {found['events']} |"


def lines(matrix: dict[str, Any]) -> Iterator[str]:
    yield HEAD
    yield from map(row, matrix["planted"])
    yield FAULTS.format(bare=", ".join(listed("unexposed.txt")) or "none")
    for name in names():
        kinds = load(name).faults
        if kinds:
            yield f"| {name} | {', '.join(kinds)} |"


if __name__ == "__main__":
    print("\n".join(lines(json.loads(Path(sys.argv[1]).read_text()))))
