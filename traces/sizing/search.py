"""The cheapest machine that serves the whole trace within its limits, and what would change that.

    search        replays of candidates until the cheapest that serves is known
    runner-up     the cheapest other one that was seen to serve and is not the answer with more
    sensitivity   the answer with other times of passes and other loads: of a long trace on a part
                  of its sessions, with as many times more misses as the answer has on all of them

A candidate serves if at least a part of the requests keep every limit. A replay ends as soon as
fewer can. More of everything never serves less, so a replay that fails rules out every weaker
candidate, and one that serves rules out every dearer one. A guess of what each can do chooses the
next replay: first the cheapest that should serve, then the strongest of those that are cheaper. The
guess decides how many replays there are, never the answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from math import ceil, sqrt
from typing import Any

import numpy as np

from hicache.core.errors import CallerError

from ..curves import Curve, lru_curve
from ..formats.base import Trace, sampled
from ..replaying.options import ReplayOptions
from ..replaying.traffic import SPREAD, Arrivals, Slo
from ..reporting import percent, seconds
from ..reporting.warnings import is_coarse
from ..sweeping import points
from ..sweeping.points import Document, How, Measured, Task, Traces, opened_once
from .candidates import Offer, Purchase, odds

PASSES, LOAD = "passes", "load"
OPTIMISM = 1.1  # by so much the queue of `in_time` may be too short or too long
_HARDER = 1.5  # the next guess should be so many times that of one that failed or served
_SIDE_BY_SIDE = 8  # replays in a round; the same on every machine, and so are the replays
PROBED = 1_500  # requests of the part on which the sensitivity of a long trace is looked for
LONG = 3 * PROBED
_MORE = Fraction(5, 4)  # times the load
_UNKNOWN_ERROR = 0.2  # of times that were never judged
_SECONDS = 2  # replays for the runner-up
_MOST = 3  # times as much, before a flip is looked for no further
_MOST_ROUNDS = 6
_FEW = 4  # replays, before a bracket is halved instead
_STEP = 1.4
_CLEARLY = 1.5  # times the odds
_WITHIN = 1.05  # the ends of a bracket that is narrow enough
_DIGITS = 3  # of a factor, so that it can be typed
_CAPACITIES = 50

Wanted = tuple[int, str, Fraction]  # a candidate with so many times the load or as long passes


@dataclass(frozen=True, slots=True)
class Decision:
    """document: the `decision` of the report, as docs/json.md describes it. answers: documents of
    replays, by their candidate's place. spread: whether a coarse clock was spread although nobody
    asked for it."""

    trace: Trace
    offer: Offer
    options: ReplayOptions
    document: Document
    answers: Mapping[int, Document]
    spread: bool
    ended: Measured


def decision(replay_options: ReplayOptions, purchase: Purchase, how: How, command: str) -> Decision:
    """Runs everything. Raises CallerError for what cannot be run, before the first replay."""
    traces = Traces()
    base = replace(
        replay_options,
        check=replay_options.check or "off",
        seed=replay_options.seed or 1,
        sample=None,
    )
    base, spread = _spread_of(base, traces)
    trace = traces(base)
    offer = Offer(base, purchase, trace)
    recorded, part = traces.recorded(base), replay_options.sample or Fraction(1)
    played, hits_error = _part_of(base, part, recorded, trace, offer)
    trials = Trials(offer, played, purchase.attain, how, command)
    requests = len(opened_once(played).jobs)
    search = _searched(trials, requests >= LONG)
    answer = None if trials.ended.over else _best(search, trials)
    searched = trials.count
    runner_up = None if answer is None else _runner_up(answer, trials)
    today = None if purchase.today is None else offer.candidates.index(purchase.today)
    if today is not None:
        trials.run([today])
    rows = [_row(offer, place, trials.answers.get(place)) for place in range(len(offer.candidates))]
    for place, row in enumerate(rows):
        row["why"] = row["why"] or _reason(place, row, search, trials, answer)
    confidence: Document = {"pass_error": 0.0, "judged": False, "flips": []}
    confidence |= {"attained_error": None, "part_requests": None}
    if answer is not None and not trials.ended.over:
        probe = None
        if requests >= LONG and _can_be_sampled(played, recorded):
            probe = part * Fraction(f"{PROBED / requests:.2g}")
            opened_once.hold(replace(played, sample=probe), sampled(recorded, probe))
        confidence |= _sensitivity(trials, answer, rows, probe)
    places = {"answer": answer, "runner_up": runner_up, "today": today}
    sample = {"part": float(part), "requests": requests, "hit_rate_error": hits_error}
    limits = base.slo.limits if base.slo else ()
    names = ("requests", "requests_per_s", "input_tokens", "output_tokens")
    document = {
        **{name: None if place is None else rows[place] for name, place in places.items()},
        "limits": " and ".join(f"{name.upper()} {seconds(limit / 1e9)}" for name, limit in limits),
        "attain": float(purchase.attain),
        "demand": {name: getattr(offer.demand, name) or None for name in names},
        "prices": {
            "per_hour": offer.used_prices(),
            "source": offer.prices.source,
            "currency": offer.prices.currency,
        },
        "confidence": confidence,
        "sample": None if part == 1 else sample,
        "candidates": rows,
        "refused": [
            {"reason": reason, "machines": machines} for reason, machines in offer.refused.items()
        ],
        "replays": trials.count,
        "searched": searched,
    }
    return Decision(trace, offer, base, document, trials.answers, spread, trials.ended)


def _row(offer: Offer, place: int, document: Document | None) -> Document:
    """What is known of a candidate. document: that of its replay; None without one."""
    candidate = offer.candidates[place]
    cost, stopped = offer.costs[candidate], (document or {}).get("stopped")
    full = {} if stopped else document or {}
    ttft, slo = (full.get("latency_s") or {}).get("ttft", {}), full.get("slo") or {}
    goodput, why = slo.get("goodput_requests_per_s"), ""
    if stopped:
        why = "{missed:,} of the first {ended:,} requests missed the limits".format(**stopped)
    return {
        "label": candidate.label,
        **asdict(candidate),
        "gpus": candidate.gpus,
        "host_bytes_total": candidate.host_bytes * candidate.replicas,
        "cost_per_hour": cost,
        **{f"ttft_{name}_s": ttft.get(name) for name in ("p50", "p90", "p99")},
        "attained_rate": slo.get("attained_rate"),
        "goodput_requests_per_s": goodput,
        "goodput_per_cost": goodput * 3600 / cost if goodput is not None and cost else None,
        "served": document and offer.serves(document),
        "why": why,
    }


def _spread_of(base: ReplayOptions, traces: Traces) -> tuple[ReplayOptions, bool]:
    """The options with `--arrivals spread`, with which a seed draws arrivals; whether the clock of
    the trace is coarse and nobody asked for that."""
    if base.arrivals is not None or base.concurrency is not None:
        return base, False
    if traces(base).jobs.sender is not None:
        return base, False
    return replace(base, arrivals=Arrivals(SPREAD)), is_coarse(traces(base).jobs)


# -- a part of a trace


def _part_of(
    base: ReplayOptions, part: Fraction, recorded: Trace, trace: Trace, offer: Offer
) -> tuple[ReplayOptions, float | None]:
    """The options of replays of a part, and the error of its hits. Keeps what is replayed where
    replays look for it."""
    if part == 1:
        opened_once.hold(base, recorded)
        return base, None
    if not _can_be_sampled(base, recorded):
        raise CallerError(
            "--sample: expected sessions that begin at different times, found that all of "
            f"{recorded.path} begin at one, so that a part has less load; give --request-rate, or "
            "leave --sample out"
        )
    played = replace(base, sample=part)
    opened_once.hold(played, sampled(recorded, part))
    if offer.curves is None:
        return played, None
    sizes = [offer.machines.pages(candidate) for candidate in offer.candidates]
    between = min(sizes), max(sizes)
    return played, errors_of(trace, opened_once(played), offer.curves.lru, between)


def errors_of(trace: Trace, some: Trace, exact: Curve, between: tuple[int, int]) -> float:
    """The largest error of hit rates on a part of the trace, over capacities. exact: the curve of
    the whole trace. between: capacities in pages."""
    least, most = (max(1, end) for end in between)
    capacities = np.geomspace(least, most, _CAPACITIES).astype(np.int64)
    of_whole, of_part = (
        curve.tokens_at(capacities) / of.jobs.input_tokens
        for curve, of in ((exact, trace), (lru_curve(some.paged(exact.page_size)), some))
    )
    return float(np.abs(of_whole - of_part).max())


def _can_be_sampled(base: ReplayOptions, recorded: Trace) -> bool:
    """Whether a part has the load of the whole."""
    jobs = recorded.jobs
    value = base.request_rate is not None or base.concurrency is not None
    return value or not jobs.begin_together or jobs.sender is not None


# -- the search


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
        return [index for index in range(end) if index not in known]

    def next(self, most: int = 1) -> list[int]:
        """Trials that are worth doing now, side by side; none when the answer is known."""
        left = self.open
        if not left:
            return []
        likely = next((number for number in left if self.guess(number) >= self.enough), left[-1])
        cheaper = [number for number in left if number < likely]
        strongest = [number for number in cheaper if not self._is_beaten(number, cheaper)]
        strongest.sort(key=self.guess, reverse=True)
        return [likely, *strongest][:most]

    def _is_beaten(self, number: int, among: Sequence[int]) -> bool:
        """Whether another one has at least as much of everything; of equal ones, the first has."""
        return any(
            self.weaker(number, other) and not (number < other and self.weaker(other, number))
            for other in among
            if other != number
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


def kept_of(document: Document) -> float:
    """About which part of the requests kept the limits, of those that were replayed."""
    if "stopped" in document:
        return float(1 - document["stopped"]["missed"] / document["stopped"]["ended"])
    return float(document["slo"]["attained_rate"])


class Trials:
    """Replays of candidates, round by round. All have the same draws, so that two differ by what
    they are.

    base: the options of every replay. attain: the part of the requests. count: how many replays
    there were. ended: how the last round ended.
    """

    def __init__(
        self, offer: Offer, base: ReplayOptions, attain: Fraction, how: How, command: str
    ) -> None:
        self.offer, self.attain, self.count, self.ended = offer, attain, 0, Measured()
        self._base, self._how, self._command = base, how, command
        self._header = points.header_of(points.Grid(base), command)
        self.answers: dict[int, Document] = {}

    def run(self, wanted: Sequence[int]) -> None:
        """Replays candidates as they are, those that were not yet."""
        new = [number for number in wanted if number not in self.answers]
        replay = self.replay([(number, LOAD, Fraction(1)) for number in new])
        self.answers |= {
            number: it for number, it in zip(new, replay, strict=True) if it is not None
        }

    def replay(
        self, wanted: Sequence[Wanted], probe: Fraction | None = None
    ) -> list[Document | None]:
        """The document of each; None for those that an interrupt left out. probe: the part of the
        trace, of which also replays that cannot serve come to their end; None for all."""
        tasks = []
        attain = self.attain if probe is None else None
        for number, what, factor in wanted:
            candidate = self.offer.candidates[number]
            options = harder(candidate.options(self._base), what, factor, probe)
            key = f"{points.key_of(options, self._header['trace']['sha256'])}-{attain}"
            label = candidate.label + f", {what} x {float(factor):g}" * (factor != 1)
            tasks.append(Task(key, label, asdict(candidate), options, self._command, attain))
        if not tasks or self.ended.over:
            return [None] * len(tasks)
        # those without host memory take the least time: last, they leave no core idle for long
        first = sorted(tasks, key=lambda task: not task.point["host_bytes"])
        label = f"{self._how.label}, replays {self.count + 1} to {self.count + len(tasks)}"
        self.ended = points.measured(first, replace(self._how, label=label), self._header)
        done = {document["key"]: document for document in self.ended.points}
        self.count += len(done)
        return [done.get(task.key) for task in tasks]

    def served(self, number: int) -> bool:
        """Whether a candidate was seen to serve."""
        result = self.answers.get(number)
        return result is not None and self.offer.serves(result)


def _searched(trials: Trials, is_long: bool) -> Search:
    """The cheapest candidate that serves. Of a long trace, those that should serve at the cost of
    the likeliest are replayed beside it."""
    offer, machines = trials.offer, trials.offer.machines
    known = offer.candidates
    guess = (lambda item: odds(machines.in_time(item))) if is_long else machines.likely
    search = Search(
        len(known),
        lambda number, other: machines.weaker(known[number], known[other]),
        lambda number: guess(known[number]),
        odds(float(trials.attain)),
        ruled_out={**offer.same_as},
    )
    for place, candidate in enumerate(known):
        if machines.in_time(candidate, OPTIMISM) < trials.attain:
            search.ruled_out.setdefault(place, place)
    while not trials.ended.over and (wanted := search.next(_SIDE_BY_SIDE)):
        if is_long:
            wanted += [
                number
                for number in search.open
                if number not in wanted
                and offer.price_and_host(number) == offer.price_and_host(wanted[0])
                and search.guess(number) >= search.enough
            ]
        trials.run(wanted)
        for value in wanted:
            if value in trials.answers:
                search.tried(value, trials.served(value))
    return search


def _best(search: Search, trials: Trials) -> int | None:
    """The cheapest that serves. Other machines at its cost, with its host memory, are replayed as
    well, and the one that keeps the limits of most is the answer."""
    first, offer = search.answer, trials.offer
    if first is None:
        return None
    equal = offer.price_and_host(first)
    known = search.failed | {*search.ruled_out}
    same = [place for place in range(search.count) if offer.price_and_host(place) == equal]
    trials.run([place for place in same if place not in known])
    served = [index for index in range(search.count) if trials.served(index)]
    same_cost = [number for number in served if offer.price_and_host(number)[0] == equal[0]]
    return max(same_cost, key=lambda number: kept_of(trials.answers[number]))


def _runner_up(answer: int, trials: Trials) -> int | None:
    """The cheapest other one that was seen to serve, and is not the answer with more. If there is
    none, the cheapest two that should serve are replayed."""
    offer, likely = trials.offer, trials.offer.machines.likely
    known, best = offer.candidates, offer.candidates[answer]
    others = [
        place
        for place, candidate in enumerate(known)
        if place not in (answer, *offer.same_as)
        and offer.costs[candidate] >= offer.costs[best]
        and not (
            candidate.machine == best.machine
            and candidate.replicas >= best.replicas
            and candidate.host_bytes >= best.host_bytes
        )
    ]
    if not any(map(trials.served, others)):
        trials.run([item for item in others if likely(known[item]) >= likely(best)][:_SECONDS])
    return next(filter(trials.served, others), None)


def _reason(place: int, row: Document, search: Search, trials: Trials, answer: int | None) -> str:
    """Why a candidate was not replayed."""
    offer, by = trials.offer, search.ruled_out.get(place)
    if row["served"] is not None:
        return ""
    if by is None:
        return "costs more" if answer is not None and place > answer else ""
    other = offer.candidates[by].label
    if place in offer.same_as:
        return f"hits what {other} hits"
    if by != place:
        return f"weaker than {other}"
    most = offer.machines.in_time(offer.candidates[place], OPTIMISM)
    return f"at most {percent(most, 1)} of the prompts can be in time"


# -- what would change it


Known = Mapping[Fraction, float]  # the part that kept the limits, about, by the factor


def _sensitivity(
    trials: Trials, answer: int, rows: Sequence[Document], probe: Fraction | None
) -> Document:
    """The `confidence` of the decision: the answer with more to do, until it is known to 5 % from
    where it fails to serve. More work never helps, so that is where it flips. probe: the part of
    the trace that is replayed; None for all."""
    document, known = trials.answers[answer], trials.offer.candidates
    error, validated = pass_error(document)
    attain, kept, scale, probed = float(trials.attain), kept_of(document), 1.0, None

    def look(wanted: Sequence[Wanted]) -> list[float | None]:
        """The parts that keep the limits; None for what an interrupt left out."""
        return [
            None if row is None else kept_of(row) if scale == 1 else 1 - scale * (1 - kept_of(row))
            for row in trials.replay(wanted, probe)
        ]

    if probe is not None:  # so many times as many requests miss the limits of all as of the part
        [own] = trials.replay([(answer, LOAD, Fraction(1))], probe)
        if own is not None:
            probed = own["total"]["requests"]
            scale = (1 - kept) / max(1 - kept_of(own), 1 / probed)
    seen = {what: {Fraction(1): kept} for what in (PASSES, LOAD)}
    wanted: list[Wanted] = [(answer, PASSES, 1 + Fraction(f"{error:.2f}")), (answer, LOAD, _MORE)]
    for _ in range(1 + _MOST_ROUNDS):
        for (_, what, by), number in zip(wanted, look(wanted), strict=True):
            if number is not None:
                seen[what][by] = number
        wanted = [
            (answer, what, by) for what, of in seen.items() for by in factors_to_try(of, attain)
        ]
        if not wanted or trials.ended.over:
            break
    # the cheapest that is clearly likelier to serve than the answer
    odds_of = [*map(trials.offer.machines.likely, known)]
    dearer = range(answer + 1, len(known))
    stronger = [place for place in dearer if odds_of[place] >= odds_of[answer] * _CLEARLY][:1]
    ends = {what: _ends(row, attain) for what, row in seen.items()}
    wanted = [(number, what, at) for what, (_, at) in ends.items() if at for number in stronger]
    to = {
        what: rows[number]
        for (number, what, _), result in zip(wanted, look(wanted), strict=True)
        if result is not None and result >= attain
    }
    crossovers = [
        {"what": what, "holds": float(holds), "at": at and float(at), "to": to.get(what)}
        for what, (holds, at) in ends.items()
    ]
    return {
        "pass_error": error,
        "judged": validated,
        "attained_error": document["slo"]["attained_error"],
        "part_requests": probed,
        "flips": [] if trials.ended.over else crossovers,
    }


def pass_error(document: Document) -> tuple[float, bool]:
    """The error to expect of the time of a pass, and whether it was judged; else it is assumed."""
    stated = (document.get("expected_error") or {}).get("tpot") or {}
    validated = bool(stated.get("runs"))
    return max(0.01, round(stated["median"] if validated else _UNKNOWN_ERROR, 2)), validated


def harder(
    options: ReplayOptions, what: str, factor: Fraction, probe: Fraction | None
) -> ReplayOptions:
    """A replay of the part `probe` with so many times the load, or passes that take as many times
    as long.

    More load is more sessions, where the trace says when they begin; else more requests a second or
    at once, as the user gave them. If every pass, copy and step of the host takes `factor` times as
    long, that is the load times the factor, with all times of the replay the factor longer: a
    replay at that load whose limits are the factor shorter, and whose times are to be multiplied.
    """
    changed: dict[str, Any] = {} if probe is None else {"sample": probe}
    if factor != 1 and options.request_rate is not None:
        changed["request_rate"] = options.request_rate * factor
    elif factor != 1 and options.concurrency is not None:
        changed["concurrency"] = ceil(options.concurrency * factor)
    elif factor != 1:
        name = "speed" if what == PASSES else "scale_sessions"
        changed[name] = (getattr(options, name) or Fraction(1)) * factor
    if factor != 1 and what == PASSES and options.slo is not None:
        limits = {f"{name}_ns": int(limit / factor) for name, limit in options.slo.limits}
        changed["slo"] = Slo(**limits)
    return replace(options, **changed)


def factors_to_try(known: Known, attain: float) -> list[Fraction]:
    """The next factors: on both sides of where a line through what is known meets the part that is
    asked for. None if that is known to 5 %, or lies beyond what is looked at."""
    low, high = _ends(known, attain)
    if low >= _MOST or (high is not None and high <= low * Fraction(_WITHIN)):
        return []
    least = low * Fraction(101, 100)
    most = Fraction(_MOST) if high is None else high * Fraction(100, 101)
    other = high
    if high is None:
        other = max((fraction for fraction in known if fraction < low), default=None)
    at = float(low) * _STEP
    if other is not None:
        slope = (known[other] - known[low]) / float(other - low)
        if slope < 0:
            at = float(low) + (attain - known[low]) / slope
    if len(known) > _FEW and high is not None:
        at = sqrt(low * high)
    near = sqrt(_WITHIN) * 0.999
    both = (min(max(float(least), number), float(most)) for number in (at / near, at * near))
    fractions = {Fraction(f"{number:.{_DIGITS}g}") for number in both}
    return sorted(part for part in fractions - known.keys() if low < part and part != high)


def _ends(known: Known, attain: float) -> tuple[Fraction, Fraction | None]:
    """The largest factor that is served below all that are not, and the smallest of these."""
    high = min((factor for factor, kept in known.items() if kept < attain), default=None)
    return max(factor for factor in known if high is None or factor < high), high
