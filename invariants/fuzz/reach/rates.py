"""How often sequences reach each named state, and which of them a run of a given length owes.

`rates.json` counts, for sequences of each set of components, how many of a large run reached each
expected name (`hicache fuzz --sequences 20000 --rates FILE` writes it anew). A run owes a name if
missing it by chance is less likely than one in a million at a rate well below the measured one.
Must not live here: the names (expected), or counting them (probes).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import isqrt
from pathlib import Path

PATH = Path(__file__).with_name("rates.json")
FORMAT, VERSION = "hicache-fuzz-rates", 1
OPERATIONS = 120  # of the sequences that were counted; shorter ones owe nothing
CERTAIN = 20  # exp(-14) is one in a million; the rest is for rates that drift as the code does

Reached = Mapping[str, Mapping[str, int]]  # by components: sequences, under "", and by name


@cache
def table() -> dict[str, dict[str, int]]:
    """The measured run: by components, how many sequences (under "") and how many met each name."""
    document = json.loads(PATH.read_text(encoding="utf-8"))
    found: dict[str, dict[str, int]] = document["reached"]
    return found


def floor(count: int) -> int:
    """What four standard deviations less than a count of rare things would have been."""
    return max(0, count - 4 * (isqrt(count) + 1))


def owed(name: str, played: Mapping[str, int], reached: Reached | None = None) -> bool:
    """Whether that many sequences, by their components, must have met the name."""
    known = table() if reached is None else reached
    expected = 0.0
    for components, count in played.items():
        row = known.get(components, {})
        expected += count * floor(row.get(name, 0)) / max(1, row.get("", 0))
    return expected >= CERTAIN


def document(reached: Reached, names: tuple[str, ...]) -> dict[str, object]:
    """What `rates.json` holds, from what a run has met."""
    kept = {
        components: {name: row[name] for name in ("", *names) if name in row}
        for components, row in reached.items()
    }
    return {"format": FORMAT, "version": VERSION, "operations": OPERATIONS, "reached": kept}
