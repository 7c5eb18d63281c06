"""A script: the n-th choice takes the option of the n-th number; after the last number, the first
option.

All pending replies are options, due or not, and so is leaving them all for later. `asked` holds the
number of options of each choice, from which an enumeration continues.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Pending
from .base import Schedule

MOST = 4


class Script(Schedule):
    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)
        self.asked: list[int] = []
        self.chosen: list[int] = []

    def offers(self, now: int, pending: Sequence[Pending]) -> list[Pending]:
        return sorted(pending, key=lambda one: one.number)[:MOST]

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        at, options = len(self.asked), len(ready) + 1
        value = self.numbers[at] % options if at < len(self.numbers) else 0
        self.asked.append(options)
        self.chosen.append(value)
        return ready[value] if value < len(ready) else None


def make(numbers: Sequence[int]) -> Schedule:
    return Script(numbers)
