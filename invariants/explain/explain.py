"""Which objects a failure names, and which line decided a change. Does not record (see instruments,
recorder) or print."""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.errors import About
from invariants.books.story import named_by

from ..source_lines import SourceLine
from .recorder import Account

MOST_NAMED = 4
# Every change passes through these files; the line that decided it is a caller.
PLUMBING = ("ledger.py", "locks.py", "lru.py", "node.py", "tree.py", "boundaries.py")


def named(account: Account) -> list[About]:
    """Returns the objects that the failure names, else those of the last event."""
    failure = account.outcome.failure
    if failure is None:
        return []
    found = list(failure.about)
    if not found and account.steps:
        found = named_by(account.steps[-1].event)
    return list(dict.fromkeys(found))[:MOST_NAMED]


def title(one: About) -> str:
    where = {0: "device ", 1: "host "}.get(one.tier, "")
    if one.kind == "pool":
        return f"{where}pool of {one.component}"
    return f"{where}{one.component}{' ' * bool(one.component)}{one.kind} {one.number}"


def decisive(source_lines: Sequence[SourceLine]) -> SourceLine | None:
    """Returns the innermost line outside the files of PLUMBING."""
    outer = [one for one in source_lines if not _is_plumbing(one)]
    return next(iter(outer or source_lines), None)


def _is_plumbing(source_line: SourceLine) -> bool:
    folder, _, name = source_line.file.rpartition("/")
    in_core = folder.startswith("hicache/core")
    return (in_core and name in PLUMBING) or folder == "hicache/devices"
