"""PCT: each source has a priority and the highest goes first. At d - 1 random steps, that source
gets the lowest priority.

    pct:key:depth:steps

Sources are the three kinds of actions and the host poll. If the poll goes first, replies are left
for later. Only steps with a choice count. With n sources and k steps, a bug that needs d ordered
events is found with a probability of at least 1 / (n * k**(d - 1)): Burckhardt et al., "A
Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..draws import Draws
from ..records import Pending
from .base import Schedule, by_time

POLL = "poll"
SOURCES = ("Load", "Backup", "Prefill", POLL)
PATIENCE = 3  # empty polls before the poll gets the lowest priority


class Pct(Schedule):
    def __init__(self, key: int, depth: int, steps: int) -> None:
        draws = Draws(key, "pct")
        left = list(SOURCES)
        self.order = [left.pop(draws.below(len(left))) for _ in SOURCES]
        self.changes = {draws.below(steps) for _ in range(depth - 1)}
        self.step = self.polls = 0

    def choose(self, ready: Sequence[Pending], pending: Sequence[Pending]) -> Pending | None:
        there = {type(one.action).__name__ for one in ready} | {POLL}
        first = next(name for name in self.order if name in there)
        if len(there) > 1:
            if self.step in self.changes:
                self._last(first)
                first = next(name for name in self.order if name in there)
            self.step += 1
        if first == POLL:
            self.polls += 1
            if self.polls % PATIENCE == 0:
                self._last(POLL)
            return None
        return min((one for one in ready if type(one.action).__name__ == first), key=by_time)

    def _last(self, name: str) -> None:
        self.order.remove(name)
        self.order.append(name)


def make(numbers: Sequence[int]) -> Schedule:
    key, depth, steps = (*numbers, 0, 3, 64)[:3] if not numbers else (*numbers, 3, 64)[:3]
    return Pct(key, max(1, depth), max(1, steps))
