"""What the planted bugs do not show, and why: two lists that somebody has read.

    implied.txt    checks that notice no planted bug alone, because others say as much
    unexposed.txt  kinds of faults that expose no planted bug

Lives here: reading them, and which lines are stale or missing. Must not live here: hunting.
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
    """missing: without a bug, and on no list. listed: without one, reviewed. stale: on the list,
    and there is a bug, or no such name."""

    missing: tuple[str, ...]
    listed: tuple[str, ...]
    stale: tuple[str, ...]


def reviewed(name: str, text: str | None = None) -> dict[str, str]:
    """The reasons of a list, by name. text: its content, unless it is to be read."""
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
    """Of the names of `whole`, which are not `covered`."""
    known, done = list(whole), set(covered)
    bare = [name for name in known if name not in done]
    return Gaps(
        tuple(name for name in bare if name not in listed),
        tuple(name for name in bare if name in listed),
        tuple(name for name in listed if name in done or name not in known),
    )


def exposing() -> dict[str, tuple[str, ...]]:
    """The planted bugs that a kind of fault exposes, by kind, as their files say."""
    found: dict[str, list[str]] = {}
    for name in names():
        for kind in getattr(load(name), "FAULTS", ()):
            found.setdefault(kind, []).append(name)
    return {kind: tuple(bugs) for kind, bugs in sorted(found.items())}
