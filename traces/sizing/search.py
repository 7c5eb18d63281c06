"""The cheapest candidate that serves, found with few replays, and points that are moved: with
another load, longer passes or other arrivals.

A candidate serves if at least a part of the requests keep every limit. A replay ends as soon as
fewer can. Candidates are numbers, the cheapest first. More of everything never serves less, so a
replay that fails rules out every weaker candidate, and one that serves rules out every dearer one.
A guess of what each can do chooses the next replay: first the cheapest that should serve, then the
strongest of those that are cheaper. The guess decides how many replays there are, never the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any

from ..replaying.load import Slo
from ..replaying.options import ReplayOptions
from ..reporting import percent
from ..sweeping.grid import Grid, Point, Value, header_of, tasks_of
from ..sweeping.work import Document, How, Measured, labelled, measured, opened_once
from .candidates import OPTIMISM, Candidate, Machines, odds

_HARDER = 1.5  # the next guess should be so many times that of one that failed or served
_SIDE_BY_SIDE = 8  # replays in a round; the same on every machine, and so are the replays
PROBED = 1_500  # requests of the part on which the sensitivity of a long trace is looked for
LONG = 3 * PROBED

Named = tuple[str, Point]
Moved = Callable[[Named], Named]


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


def kept_of(document: Document | None) -> float:
    """About which part of the requests kept the limits, of those that were replayed."""
    if document is None:
        return 0.0
    if "stopped" in document:
        return float(1 - document["stopped"]["missed"] / document["stopped"]["ended"])
    return float(document["slo"]["attained_rate"])


class Trials:
    """Replays of candidates, round by round. What a round before had is not replayed again. All
    have the same draws, so that two differ by what they are.

    base: the options of every replay. attain: the part of the requests. ended: how the last round
    ended.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        base: ReplayOptions,
        machines: Machines,
        attain: Fraction,
        how: How,
        command: str,
    ) -> None:
        self.candidates, self.machines, self.attain = candidates, machines, attain
        self.ended = Measured()
        self._base, self._how, self._command = base, how, command
        self._header = header_of(Grid(base), command)
        self._done: dict[str, Document] = {}
        self._found: dict[int, Document] = {}

    @property
    def count(self) -> int:
        """How many replays there were."""
        return len(self._done)

    def known(self, one: int) -> Document | None:
        """The document of a candidate as it is, if it was replayed."""
        return self._found.get(one)

    def run(self, wanted: Sequence[int]) -> None:
        """Replays candidates as they are."""
        found = self.moved([(one, lambda named: named) for one in wanted])
        self._found |= {
            one: document
            for one, document in zip(wanted, found, strict=True)
            if document is not None
        }

    def moved(
        self, wanted: Sequence[tuple[int, Moved]], whole: bool = False
    ) -> list[Document | None]:
        """The document of each; None for those that an interrupt left out. whole: also replays that
        cannot serve come to their end."""
        named = []
        for one, move in wanted:
            candidate = self.candidates[one]
            named.append(move((candidate.label, candidate.point(self._base))))
        attain = None if whole else self.attain
        points = [point for _, point in named]
        tasks = [
            replace(
                task,
                key=task.key if whole else f"{task.key}-{attain}",
                label=label,
                command=self._command,
                attain=attain,
            )
            for task, (label, _) in zip(
                tasks_of(points, {}, self._header["trace"]["sha256"]), named, strict=True
            )
        ]
        missing = {task.key: task for task in tasks if task.key not in self._done}
        if missing and not self.ended.over:
            each = len(opened_once(tasks[0].options).jobs)
            # those without host memory take the least time: last, they leave no core idle for long
            first = sorted(missing.values(), key=lambda task: not task.point["host_bytes"])
            label = f"{self._how.label}, replays {self.count + 1} to {self.count + len(first)}"
            self.ended = measured(first, replace(self._how, label=label), self._header, each)
            self._done |= {document["key"]: document for document in self.ended.points}
        known = [(task.label, self._done.get(task.key)) for task in tasks]
        return [labelled(found, label) if found else None for label, found in known]

    def serves(self, document: Document | None) -> bool:
        if document is None or "stopped" in document:
            return False
        return bool(document["slo"]["attained_rate"] >= float(self.attain))

    def cannot(self, one: Candidate) -> str:
        """Why a candidate cannot serve, whatever a replay would say; empty if it might."""
        most = self.machines.in_time(one, OPTIMISM)
        if most < self.attain:
            return f"at most {percent(most, 1)} of the prompts can be in time"
        return ""

    def search(
        self, among: Sequence[int], costs: Mapping[Candidate, float], requests: int
    ) -> Search:
        """The cheapest of some candidates that serves. requests: of the trace. Of a long one, those
        that should serve at the cost of the likeliest are replayed beside it."""
        known = [self.candidates[one] for one in among]
        machines, is_long = self.machines, requests >= LONG
        guess = (lambda one: odds(machines.in_time(one))) if is_long else machines.likely
        search = Search(
            len(known),
            lambda one, other: machines.weaker(known[one], known[other]),
            lambda one: guess(known[one]),
            odds(float(self.attain)),
        )
        for place, one in enumerate(known):
            if self.cannot(one):
                search.ruled_out[place] = place
        while not self.ended.over and (wanted := search.next(_SIDE_BY_SIDE)):
            if is_long:
                first = known[wanted[0]]
                wanted += [
                    place
                    for place in search.open
                    if place not in wanted
                    and costs[known[place]] == costs[first]
                    and (known[place].host_bytes, known[place].stored)
                    == (first.host_bytes, first.stored)
                    and search.guess(place) >= search.enough
                ]
            self.run([among[place] for place in wanted])
            for place in wanted:
                document = self.known(among[place])
                if document is not None:
                    search.tried(place, self.serves(document))
        return search


# -- points that are moved


def drawn(named: Named, seed: int) -> Named:
    """The point with another draw of what is random."""
    return _with(named, f"draw {seed}", seed=seed)


def more_load(named: Named, factor: Fraction) -> Named:
    """The point with so many times its load: more sessions, where the trace says when they begin;
    else more requests a second or at once, as the user gave them."""
    options = named[1].options
    if factor == 1:
        return named
    if options.request_rate is None and options.concurrency is None:
        changed: dict[str, Any] = {"scale_sessions": (options.scale_sessions or 1) * factor}
    else:
        changed = _load_of(options, Fraction(1), factor)
    return _with(named, f"{float(factor):g} x the load", **changed)


def sharing(named: Named, how: str) -> Named:
    """The point of a log whose prompts share nothing (`none`), or all that they could (`most`)."""
    label, point = named
    point = Point(replace(point.options, growth=None), point.varied)
    return _with((label, point), f"--sharing {how}", sharing=how)


def part_of(named: Named, rate: Fraction | None, move: Moved) -> Named:
    """What `move` makes of the point with a part of the trace."""
    label, point = move(named)
    return (label, point) if rate is None else _with((label, point), "a part", sample=rate)


def slower_passes(named: Named, factor: Fraction) -> Named:
    """The point as it is if every pass, copy and step of the host takes `factor` times as long.

    That is the load times the factor, with all times of the replay the factor longer. So it is a
    replay at that load whose limits are the factor shorter, and whose times are to be multiplied.
    """
    options = named[1].options
    changed = _load_of(options, options.speed or Fraction(1), factor)
    if options.slo is not None:
        limits = {f"{name}_ns": int(limit / factor) for name, limit in options.slo.limits}
        changed["slo"] = Slo(**limits)
    return _with(named, f"passes {float(factor):g}x as long", **changed)


def _load_of(
    options: ReplayOptions, speed: Fraction, load: Fraction = Fraction(1)
) -> dict[str, Any]:
    """The option that makes so many times the load: what the user gave of the load, else the
    speed."""
    if options.request_rate is not None:
        return {"request_rate": options.request_rate * load}
    if options.concurrency is not None:
        return {"concurrency": ceil(options.concurrency * load)}
    return {"speed": speed * load}


def _with(named: Named, how: str, **changed: Any) -> Named:
    label, point = named
    varied = point.varied | {name: Value(_text(value), value) for name, value in changed.items()}
    return f"{label}, {how}", Point(replace(point.options, **changed), varied)


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else str(value)
