"""A part of many cases, drawn from the commit, so that other commits try other parts.

A test marked `one_in(n)` is slow: each commit runs one in n of its cases, and at least one where it
has several. `sample` draws a number of cases. A test that is named on the command line runs.
`--all` (`make check-all`) runs every case. HICACHE_SAMPLE=NUMBER draws the part of another commit;
a run that fails says its number.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TypeVar

SAMPLE, ALL = "HICACHE_SAMPLE", "all"
Case = TypeVar("Case")


def of_this_commit() -> str:
    """A number for the commit that is checked out; 0 where git does not say."""
    told = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return str(int(told or "0", 16))


def sample(cases: Iterable[Case], count: int) -> list[Case]:
    """So many of the cases, in their order; all of them with `--all`."""
    every = list(cases)
    chosen = os.environ.get(SAMPLE, "0")
    if chosen == ALL or count >= len(every):
        return every
    places = Random(f"{chosen} {len(every)}").sample(range(len(every)), count)
    return [every[place] for place in sorted(places)]


def is_drawn(name: str, one_in: int) -> bool:
    """Whether this commit runs the case of this name, as one in so many commits do."""
    chosen = os.environ.get(SAMPLE, "0")
    return chosen == ALL or Random(f"{chosen} {name}").random() * one_in < 1
