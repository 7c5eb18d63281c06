"""Measured rates of named states, and the names that a run of a given length should reach.

`rates.json` counts how many sequences of a large run reached each name, for each set of components
(`hicache fuzz --sequences 20000 --rates FILE` writes it). A run should reach a name if, at a rate
well below the measured one, it would miss it with a probability below one in a million. Does not
count names (see probes).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import isqrt
from pathlib import Path

PATH = Path(__file__).with_name("rates.json")
FORMAT, VERSION = "hicache-fuzz-rates", 1
OPERATIONS = 120  # per counted sequence; shorter runs owe nothing
RARE = 8  # sequences; what fewer reach is not written
CERTAIN = 20  # exp(-14) is one in a million; the margin allows for rates that change with the code

Reached = Mapping[
    str, Mapping[str, int]
]  # by components: number of sequences under "", and counts by name


@cache
def table() -> dict[str, dict[str, int]]:
    """The measured counts by components: sequences under "", and sequences that reached each
    name.
    """
    document = json.loads(PATH.read_text(encoding="utf-8"))
    found: dict[str, dict[str, int]] = document["reached"]
    return found


def measured(*components: str) -> tuple[str, ...]:
    """The names that sequences with these components reached; without components, all."""
    rows = [table().get(",".join(components), {})] if components else table().values()
    return tuple(dict.fromkeys(name for row in rows for name in row if name))


def floor(count: int) -> int:
    """Returns a count minus four standard deviations of a Poisson count, at least 0."""
    return max(0, count - 4 * (isqrt(count) + 1))


def owed(name: str, played: Mapping[str, int], reached: Reached | None = None) -> bool:
    """Whether this many sequences, by components, should have reached the name."""
    known = table() if reached is None else reached
    expected = 0.0
    for components, count in played.items():
        row = known.get(components, {})
        expected += count * floor(row.get(name, 0)) / max(1, row.get("", 0))
    return expected >= CERTAIN


def document(reached: Reached) -> dict[str, object]:
    """Returns the content of `rates.json` for a run."""
    kept = {
        components: {name: count for name, count in row.items() if not name or count >= RARE}
        for components, row in reached.items()
    }
    return {"format": FORMAT, "version": VERSION, "operations": OPERATIONS, "reached": kept}
