"""The cheapest candidate that serves, found with few trials.

A trial says whether one candidate serves. More of everything never serves less, so a trial that
fails rules out every weaker candidate, and one that serves rules out every dearer one. A guess of
what each candidate can do chooses the next trial: first the cheapest that should serve, then the
strongest of those that are cheaper. The guess decides how many trials there are, never the answer.

Does not replay (see decision) or know what a candidate is (see candidates).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_HARDER = 1.5  # the next guess should be so many times that of one that failed or served


@dataclass(slots=True)
class Search:
    """Candidates are numbers, in the order of their costs: the first of two that serve is the
    answer.

    weaker: whether the first one has at most what the second has, of everything. guess: how likely
    a candidate is to serve; more is likelier. enough: the guess from which it should. served,
    failed: by trial. ruled_out: the candidates that no trial is needed for, each with the one that
    says so: a trial, or itself.
    """

    count: int
    weaker: Callable[[int, int], bool]
    guess: Callable[[int], float]
    enough: float
    served: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    ruled_out: dict[int, int] = field(default_factory=dict)

    @property
    def answer(self) -> int | None:
        """The cheapest one known to serve."""
        return min(self.served, default=None)

    @property
    def open(self) -> list[int]:
        """Those that may still be the answer, the cheapest first."""
        end = self.count if self.answer is None else self.answer
        known = self.failed | self.ruled_out.keys()
        return [one for one in range(end) if one not in known]

    def next(self, most: int = 1) -> list[int]:
        """Trials that are worth doing now, side by side; none when the answer is known."""
        left = self.open
        if not left:
            return []
        likely = next((one for one in left if self.guess(one) >= self.enough), left[-1])
        cheaper = [one for one in left if one < likely]
        strongest = [one for one in cheaper if not self._is_beaten(one, cheaper)]
        strongest.sort(key=self.guess, reverse=True)
        return [likely, *strongest][:most]

    def _is_beaten(self, one: int, among: Sequence[int]) -> bool:
        """Whether another one has at least as much of everything; of equal ones, the first has."""
        return any(
            self.weaker(one, other) and not (one < other and self.weaker(other, one))
            for other in among
            if other != one
        )

    def tried(self, candidate: int, serves: bool) -> None:
        """The outcome of a trial."""
        guessed = self.guess(candidate)
        if serves:
            self.served.add(candidate)
            if guessed >= self.enough:  # otherwise the guess was wrong, and says little of others
                self.enough = guessed / _HARDER
            return
        self.failed.add(candidate)
        self.enough = max(self.enough, guessed * _HARDER)
        for other in range(self.count):
            if other not in self.failed and self.weaker(other, candidate):
                self.ruled_out.setdefault(other, candidate)
