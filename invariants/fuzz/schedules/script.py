"""A script: the n-th choice takes the option that its n-th number says, the first one behind it.

Everything under way is an option whether it is due or not, and so is leaving all of it for later.
`asked` is how many options each choice had, which is what an enumeration counts up.
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
