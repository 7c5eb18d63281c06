"""Takes due replies in order of their drawn ties, and so in any order."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Pending
from .base import Schedule


class Priority(Schedule):
    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        return min(ready, key=lambda one: (one.tie, one.due, one.number))


def make(numbers: Sequence[int]) -> Schedule:
    return Priority()
