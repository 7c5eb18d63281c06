"""The interface of schedules, their names in tapes, and the registry.

A tape's order is "name" or "name:1:2:3": a file of this folder and its integer parameters, so the
tape contains the whole schedule. A file defines `make(numbers) -> Schedule`. One schedule serves
one run.
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
    """Takes replies in order of time; subclasses override this. later: returns the delay of a reply
    for the `delay` of its act.
    """

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        """Returns the next reply to take, or None to leave the others for later."""
        return min(ready, key=by_time)

    def offers(self, now: int, pending: Sequence[Pending]) -> list[Pending]:
        """Returns the replies that `choose` may choose from."""
        return [one for one in pending if one.due <= now]

    def later(self, delay: int) -> int:
        return delay


def by_time(one: Pending) -> tuple[int, int, int]:
    return (one.due, one.tie, one.number)


def names() -> list[str]:
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in found if not name.startswith("_") and name != "base")


def schedule_of(order: str) -> Schedule:
    """Returns the schedule of a tape's order. Raises CallerError."""
    name, _, rest = order.partition(":")
    numbers = rest.split(":") if rest else []
    plain = all(one.isascii() and one.isdigit() and len(one) <= DIGITS for one in numbers)
    if name not in names() or not plain:
        raise CallerError(
            f"order: expected one of {', '.join(names())}, with numbers of at most {DIGITS} "
            f"digits behind colons, found {quoted(order)}"
        )
    module: Any = import_module(f"invariants.fuzz.schedules.{name}")
    schedule = module.make([int(one) for one in numbers])
    assert isinstance(schedule, Schedule)
    return schedule
