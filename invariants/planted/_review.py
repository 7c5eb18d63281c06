"""Reviewed lists of what the planted bugs do not cover, with reasons.

    implied.txt    checks that notice no planted bug alone, because other checks imply them
    unexposed.txt  kinds of faults that expose no planted bug

Lives here: reading the lists, and finding stale or missing lines. Does not hunt bugs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hicache.core.errors import CallerError

from .base import load, names

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Gaps:
    """Gaps of coverage. missing: names without a bug that are not listed. listed: names without a
    bug that are listed. stale: listed names that have a bug or do not exist.
    """

    missing: tuple[str, ...]
    listed: tuple[str, ...]
    stale: tuple[str, ...]


def reviewed(name: str, text: str | None = None) -> dict[str, str]:
    """Returns the reasons of a list by name. text: its content; default: the file. Raises
    CallerError for a line without a reason.
    """
    found: dict[str, str] = {}
    content = (HERE / name).read_text(encoding="utf-8") if text is None else text
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        entry, _, reason = line.partition("  ")
        if not reason.strip():
            raise CallerError(
                f"{name}:{number}: expected a name, two spaces and a reason, found {line!r}; say "
                "why there is no planted bug for it"
            )
        found[entry] = reason.strip()
    return found


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
