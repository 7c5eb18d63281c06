"""The cheapest candidate that serves, found with few trials, and which serve with something moved.

A candidate serves if at least a part of the requests keep every limit. A replay ends as soon as
fewer can. Candidates are numbers, the cheapest first. More of everything never serves less, so a
trial that fails rules out every weaker candidate, and one that serves rules out every dearer one. A
guess of what each candidate can do chooses the next trial: first the cheapest that should serve,
then the strongest of those that are cheaper. The guess decides how many trials there are, never the
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import inf

from ..deciding.answer import ALONE
from ..replaying.options import ReplayOptions
from ..reporting.amounts import percent
from . import plan
from .candidates import SURE, Candidate, Machines
from .replays import Document, Replays

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


Moved = Callable[[plan.Named], plan.Named]

_BEGINNING = 1_500  # requests
_LONG = 3  # times that: a trace whose beginning is searched first


def as_it_is(named: plan.Named) -> plan.Named:
    return named


class Trials:
    """See the module. base: the options of every replay. attain: the part of the requests. most:
    replays side by side. promising: those that served the beginning of a long trace."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        base: ReplayOptions,
        machines: Machines,
        replays: Replays,
        attain: Fraction,
        most: int,
    ) -> None:
        self.candidates, self._base, self._machines = candidates, base, machines
        self._replays, self.attain, self._most = replays, attain, most
        self._found: dict[int, Document] = {}
        self.promising: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether the run was interrupted or failed."""
        return bool(self._replays.ended.code or self._replays.ended.error)

    def cannot(self, one: Candidate) -> str:
        """Why a candidate cannot serve, whatever a replay would say; empty if it might."""
        alone = self._machines.alone(*one.machine)
        if alone < self.attain:
            return f"{percent(float(alone), 1)} of the prompts keep the limit of TTFT {ALONE}"
        most = self._machines.at_most(one)
        if most and most * SURE < 1:
            return f"its work takes {1 / most:.2g} times as long as the trace"
        return ""

    def known(self, one: int) -> Document | None:
        """The document of a candidate as it is, if it was replayed."""
        return self._found.get(one)

    def documents(self, wanted: Sequence[tuple[int, Moved]]) -> list[Document | None]:
        """The document of each; None for those that an interrupt left out."""
        named = []
        for one, moved in wanted:
            candidate = self.candidates[one]
            named.append(moved((candidate.label, candidate.point(self._base))))
        found = self._replays.run(named)
        for (one, moved), document in zip(wanted, found, strict=True):
            if moved is as_it_is and document is not None:
                self._found[one] = document
        return found

    def serves(self, document: Document | None) -> bool:
        if document is None or "stopped" in document:
            return False
        return bool(document["slo"]["attained_rate"] >= float(self.attain))

    def search(self, among: Sequence[int], requests: int = 0) -> Search:
        """The cheapest of some candidates that serves.

        requests: of the trace. A long trace is searched on its beginning first, which says what to
        expect of the whole.
        """
        known, weaker = self.candidates, self._machines.weaker
        enough = float(self.attain / (1 - self.attain)) if self.attain < 1 else inf
        if requests < _LONG * _BEGINNING:
            return self._searched(among, self._machines.likely, enough, as_it_is)
        begun = self._searched(
            among, self._machines.likely, enough, partial(plan.first_of, requests=_BEGINNING)
        )
        self.promising = {among[one] for one in begun.served}
        ends = [known[among[one]] for one in begun.served]
        failed = {known[among[one]] for one in (*begun.failed, *begun.ruled_out)}

        def guess(one: Candidate) -> float:
            if one in failed:
                return 0.0
            return 1.0 if any(weaker(end, one) for end in ends) else 0.5

        return self._searched(among, guess, 1.0 if ends else 0.5, as_it_is)

    def _searched(
        self,
        among: Sequence[int],
        guess: Callable[[Candidate], float],
        enough: float,
        moved: Moved,
    ) -> Search:
        known, weaker = self.candidates, self._machines.weaker
        search = Search(
            len(among),
            lambda one, other: weaker(known[among[one]], known[among[other]]),
            lambda one: guess(known[among[one]]),
            enough,
        )
        for place, one in enumerate(among):
            if self.cannot(known[one]):
                search.ruled_out[place] = place
        while not self.over and (wanted := search.next(self._most)):
            found = self.documents([(among[place], moved) for place in wanted])
            for place, document in zip(wanted, found, strict=True):
                if document is not None:
                    search.tried(place, self.serves(document))
        return search
