"""What a schedule is, how a tape names one, and the registry.

A tape's order is "name" or "name:1:2:3": a file of this folder and its integers, so a schedule is
all there in the tape. A file defines `make(numbers) -> Schedule`. One schedule serves one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError

from ..records import Pending
from ..tapes.lines import quoted

DIGITS = 18


class Schedule:
    """In order of time; overridden by the others. later: how long after it was issued a reply is
    due that the tape gave `delay`."""

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        """Which of those that are due is taken next; None: the host does something else first."""
        return min(ready, key=by_time)

    def offers(self, now: int, pending: Sequence[Pending]) -> list[Pending]:
        """Those from which `choose` may choose now."""
        return [one for one in pending if one.due <= now]

    def later(self, delay: int) -> int:
        return delay


def by_time(one: Pending) -> tuple[int, int, int]:
    return (one.due, one.tie, one.number)


def names() -> list[str]:
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in found if not name.startswith("_") and name != "base")


def schedule_of(order: str) -> Schedule:
    """The schedule that a tape's order names. Raises CallerError."""
    name, _, rest = order.partition(":")
    numbers = rest.split(":") if rest else []
    plain = all(one.isascii() and one.isdigit() and len(one) <= DIGITS for one in numbers)
    if name not in names() or not plain:
        raise CallerError(
            f"order: expected one of {', '.join(names())}, with numbers of at most {DIGITS} "
            f"digits behind colons, found {quoted(order)}"
        )
    module: Any = import_module(f"invariants.fuzz.schedules.{name}")
    made = module.make([int(one) for one in numbers])
    assert isinstance(made, Schedule)
    return made
