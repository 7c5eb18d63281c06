"""The reviewed list of the kinds of faults that expose no planted bug, with reasons: unexposed.txt.

Lives here: reading it, and finding stale or missing lines. Does not hunt bugs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..mutants.reviewed import reviewed
from .base import load, names


def listed(name: str) -> dict[str, str]:
    """The names of a list with their reasons."""
    return reviewed(Path(__file__).with_name(name))


@dataclass(frozen=True)
class Gaps:
    """Gaps of coverage. missing: names without a bug that are not listed. listed: names without a
    bug that are listed. stale: listed names that have a bug or do not exist.
    """

    missing: tuple[str, ...]
    listed: tuple[str, ...]
    stale: tuple[str, ...]


def gaps(whole: Iterable[str], covered: Iterable[str], listed: dict[str, str]) -> Gaps:
    """Returns the gaps: names of `whole` that are not `covered`."""
    known, done = list(whole), set(covered)
    bare = [name for name in known if name not in done]
    return Gaps(
        tuple(name for name in bare if name not in listed),
        tuple(name for name in bare if name in listed),
        tuple(name for name in listed if name in done or name not in known),
    )


def exposing() -> dict[str, tuple[str, ...]]:
    """Returns the planted bugs exposed by each kind of fault, as they name them."""
    found: dict[str, list[str]] = {}
    for name in names():
        for kind in load(name).faults:
            found.setdefault(kind, []).append(name)
    return {kind: tuple(bugs) for kind, bugs in sorted(found.items())}
