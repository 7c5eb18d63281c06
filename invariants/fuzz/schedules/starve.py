"""Delays the replies of one kind of action (0 loads, 1 backups, 2 passes, 3 lookups, 4 fetches,
5 stores, 6 deletes) while others can be taken.

With a second number n, also while fewer than n replies of this kind are pending.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records import Pending
from .base import Schedule, by_time

LANES = ("Load", "Backup", "Prefill", "Lookup", "Fetch", "Store", "Delete")


class Starve(Schedule):
    def __init__(self, lane: str, most: int) -> None:
        self.lane, self.most = lane, most

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        starved = [one for one in pending if type(one.action).__name__ == self.lane]
        others = [one for one in ready if type(one.action).__name__ != self.lane]
        if others:
            return min(others, key=by_time)
        full = len(starved) >= self.most or len(starved) == len(pending)
        return min(ready, key=by_time) if full else None


def make(numbers: Sequence[int]) -> Schedule:
    lane, most = (*numbers, 0, 0)[:2] if len(numbers) != 1 else (numbers[0], 4)
    return Starve(LANES[lane % len(LANES)], most or 4)
