"""The cheapest machine that serves the whole trace within its limits, and what would change that.

    search        replays of candidates until the cheapest that serves is known (see search)
    runner-up     the cheapest other one that was seen to serve and is not the answer with more
    sensitivity   both with other times of passes and other loads: of a long trace on a part of its
                  sessions, with as many times more misses as the answer has on all of them

Of a trace that is too long to replay, a part is replayed: a shorter trace of the same traffic (see
formats/_with_jobs), so the machine, its sizes and its load are those of the whole. The error of
hits is measured on the curve of hits, which is exact for the whole trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import ceil, sqrt
from statistics import fmean

import numpy as np

from hicache.core.errors import CallerError

from ..curves import Curve, lru_curve
from ..formats._with_jobs import sampled
from ..formats.base import Trace
from ..replaying.options import ReplayOptions
from ..reporting.outputs import is_coarse
from ..sweeping.grid import check_simulated
from ..sweeping.work import Document, How, Measured, Traces, opened_once
from ..terminal.signals import cores
from ..terminal.streams import print_error
from .candidates import Asked, Candidate, Offered, bare
from .search import (
    LONG,
    PROBED,
    Moved,
    Search,
    Trials,
    drawn,
    kept_of,
    more_load,
    part_of,
    sharing,
    slower_passes,
)

MORE = Fraction(5, 4)  # times the load
PASSES, LOAD, DRAW, SAMPLE = "passes", "load", "draw", "sample"
SHARING = ("sharing none", "sharing most")
_MOVERS = {PASSES: slower_passes, LOAD: more_load}
_UNKNOWN_ERROR = 0.2  # of times that were never judged
_SECONDS = 2  # replays for the runner-up
_MOST = 3  # times as much, before a flip is looked for no further
_MOST_RIVALS = 2  # cheaper ones that are tried with less to do
_MOST_ROUNDS = 6
_FEW = 4  # replays, before a bracket is halved instead
_STEP = 1.4
_LEAST = Fraction(1, 100)  # of the times of passes
_CLEARLY = 1.5  # times the odds
_WITHIN = 1.05  # the ends of a bracket that is narrow enough
_DIGITS = 3  # of a factor, so that it can be typed
_CAPACITIES = 50
# What a replay of a request and of a page costs, measured on the conversation trace: used to choose
# a part for a budget, so that the same budget gives the same part on any machine.
_REQUEST_S, _PAGE_S = 4e-4, 4e-6
_LONG_S = 3600.0
_SEARCH = 20  # the search of a machine on the conversation trace takes as long as so many replays
_CORES = 2


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate and what is known of it. cost: an hour. found: the document of its replay; None
    without one. served: whether it serves; None if that was not asked. why: of one that was not
    replayed, what says that it is not the answer."""

    candidate: Candidate
    cost: float
    found: Document | None
    served: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What was replayed of the trace. rate: the part; 1 for all. requests: how many. hits_mean,
    hits_most: the errors of hit rates on the sampled trace at the memory of the candidates; None
    where all was replayed, and for a trace of lengths only. work: so much of the work of the answer
    depends on the largest of them."""

    rate: Fraction
    requests: int
    hits_mean: float | None = None
    hits_most: float | None = None
    work: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A replay of the answer or a rival. what: `draw`, `passes`, `load`, or one of SHARING. factor:
    of the times of passes or the load; otherwise 1. kept: the part of the requests that kept the
    limits, about; document: of it."""

    what: str
    factor: Fraction
    candidate: Candidate
    serves: bool
    kept: float
    document: Document


@dataclass(frozen=True, slots=True)
class Flip:
    """Where the answer changes when there is more to do. what: `passes`, whose times grow, or
    `load`. holds: the largest factor at which it was seen to hold. at: the smallest at which it
    does not; None if none was found. to: one that serves then; None if the one that was tried does
    not."""

    what: str
    holds: Fraction
    at: Fraction | None
    to: Candidate | None


@dataclass(slots=True)
class Sure:
    """How sure an answer is. error: of a pass, and whether it was judged for this accelerator and
    engine. chance: how far another trace of the same traffic may be from the part of the requests
    that keep the limits, 19 times of 20; None for few requests. probed: requests of the part that
    `tried` and `flips` are of; None for all. rivals: what may be the answer within the errors, and
    why: `draw`, `passes` or `sample`."""

    error: float = 0.0
    judged: bool = False
    chance: float | None = None
    probed: int | None = None
    tried: list[Seen] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)
    rivals: list[tuple[Candidate, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decision:
    """See the module. options: of every replay. rows: every candidate, the cheapest first. answer,
    runner_up, today: places in `rows`. sure: without content where nothing serves. searched:
    replays until the answer was known, of `replays`. spread: whether a coarse clock was spread
    although nobody asked for it. part: of the trace that was replayed."""

    trace: Trace
    offered: Offered
    options: ReplayOptions
    attain: Fraction
    rows: Sequence[Row]
    answer: int | None
    runner_up: int | None
    today: int | None
    sure: Sure
    spread: bool
    searched: int
    replays: int
    ended: Measured
    part: Part


def decision(given: ReplayOptions, asked: Asked, how: How, command: str) -> Decision:
    """Runs everything. Raises CallerError for what cannot be run, before the first replay."""
    check_simulated(given.storage)
    traces = Traces()
    base = replace(given, check=given.check or "off", seed=given.seed or 1, sample=None)
    base, spread = _spread_of(base, traces)
    trace = traces(bare(base))
    offered = Offered(base, asked, trace)
    recorded = traces.recorded(base)
    part = _part(given, asked, base, recorded, offered, how)
    played = base if part.rate == 1 else replace(base, sample=part.rate)
    known, machines = offered.candidates, offered.machines
    trials = Trials(known, played, machines, asked.attain, how, command)
    worth = [place for place in range(len(known)) if place not in offered.same_as]
    search = trials.search(worth, offered.costs, part.requests)
    answer = None if trials.ended.over else _best(worth, search, trials, offered.costs)
    searched = trials.count
    runner_up = None if answer is None else _runner_up(answer, worth, trials, offered.costs)
    today = None if asked.today is None else known.index(asked.today)
    if today is not None:
        trials.run([today])
    sure = Sure()
    if answer is not None and not trials.ended.over:
        found = trials.known(answer)
        assert found is not None
        if part.hits_most:
            hits = machines.hits(known[answer]) / max(1, offered.demand.input_tokens)
            part = replace(part, work=part.hits_most / max(part.hits_most, 1 - hits))
        seeds = range(base.seed + 1, base.seed + asked.draws)  # type: ignore[operator]
        is_log = trace.identity and base.columns is not None and base.sharing is None
        looks = _Looks(answer, trials, _probe(played, recorded, part))
        sure = looks.sensitivity(seeds, is_log, part.work)
        sure.rivals += _by_chance(answer, runner_up, trials, sure.chance or 0.0)
    why = _reasons(worth, search, offered, trials, answer)
    rows = [
        Row(
            one,
            offered.costs[one],
            document := trials.known(place),
            None if document is None else trials.serves(document),
            "" if document is not None else why.get(place, ""),
        )
        for place, one in enumerate(known)
    ]
    return Decision(
        *(trace, offered, base, asked.attain, rows, answer, runner_up, today, sure),
        *(spread, searched, trials.count, trials.ended, part),
    )


def _spread_of(base: ReplayOptions, traces: Traces) -> tuple[ReplayOptions, bool]:
    """The options with --spread, with which a seed draws arrivals; whether the clock of the trace
    is coarse and nobody asked for that."""
    if base.spread is not None or base.arrivals is not None or base.concurrency is not None:
        return base, False
    if traces(base).jobs.sender is not None:
        return base, False
    return replace(base, spread=True), is_coarse(traces(base).jobs)


# -- a part of a trace


def _part(
    given: ReplayOptions,
    asked: Asked,
    base: ReplayOptions,
    recorded: Trace,
    offered: Offered,
    how: How,
) -> Part:
    """What to replay. Keeps the trace, or the part, where replays look for it."""
    trace, size, rate = offered.trace, offered.paged.page_size, given.sample or Fraction(1)
    if asked.budget_s is not None:
        rate = part_for(asked.budget_s, trace, size, _SEARCH, how.jobs or cores())
    elif given.sample is None and part_for(_LONG_S, trace, size, _SEARCH, _CORES) < 1:
        print_error(
            f"{trace.path}: the search replays all of its {len(trace.jobs):,} requests, "
            "which takes hours; --sample 0.25 replays a quarter of the sessions, and says the error"
        )
    if rate < 1 and not _can_be_sampled(base, recorded):
        raise CallerError(
            f"--sample: expected sessions that begin at different times, found that all of "
            f"{recorded.path} begin at one, so that a part has less load; give --request-rate, or "
            "leave --sample out"
        )
    played = replace(base, sample=rate if rate < 1 else None)
    opened_once.hold(played, sampled(recorded, rate))
    if rate == 1:
        return Part(rate, len(trace.jobs))
    some = opened_once(played)
    if offered.curves is None:
        return Part(rate, len(some.jobs))
    sizes = [offered.machines.pages(one) for one in offered.candidates]
    errors = errors_of(trace, some, offered.curves.lru, (min(sizes), max(sizes)))
    return Part(rate, len(some.jobs), *errors)


def part_for(budget_s: float, trace: Trace, page_size: int, replays: int, jobs: int) -> Fraction:
    """The part of the trace that so many replays have time for; 1 if for all."""
    whole_s = len(trace.jobs) * _REQUEST_S + trace.jobs.input_tokens / page_size * _PAGE_S
    part = budget_s * jobs / (replays * whole_s)
    return Fraction(1) if part >= 1 else max(Fraction(1, 1000), Fraction(f"{part:.2g}"))


def errors_of(
    trace: Trace, some: Trace, exact: Curve, between: tuple[int, int]
) -> tuple[float, float]:
    """The mean and the largest error of hit rates on a part of the trace, over capacities. exact:
    the curve of the whole trace. between: capacities in pages."""
    least, most = (max(1, end) for end in between)
    capacities = np.geomspace(least, most, _CAPACITIES).astype(np.int64)
    of_whole, of_part = (
        one.tokens_at(capacities) / of.jobs.input_tokens
        for one, of in ((exact, trace), (lru_curve(some.paged(exact.page_size)), some))
    )
    errors = np.abs(of_whole - of_part).tolist()
    return fmean(errors), max(errors)


def _can_be_sampled(base: ReplayOptions, recorded: Trace) -> bool:
    """Whether a part has the load of the whole."""
    jobs = recorded.jobs
    given = base.request_rate is not None or base.concurrency is not None
    return given or not jobs.begin_together or jobs.sender is not None


def _probe(played: ReplayOptions, recorded: Trace, part: Part) -> Fraction | None:
    """The part of a long trace on which its sensitivity is looked for, kept where replays look for
    it; None for all."""
    if part.requests < LONG or not _can_be_sampled(played, recorded):
        return None
    rate = part.rate * Fraction(f"{PROBED / part.requests:.2g}")
    opened_once.hold(replace(played, sample=rate), sampled(recorded, rate))
    return rate


# -- the answer


def _best(
    worth: Sequence[int], search: Search, trials: Trials, costs: Mapping[Candidate, float]
) -> int | None:
    """The cheapest that serves. Other machines at its cost, with its host memory and store, are
    replayed as well, and the one that keeps the limits of most is the answer."""
    if search.answer is None:
        return None
    known = trials.candidates
    first = known[worth[search.answer]]
    undecided = [
        one
        for place, one in enumerate(worth)
        if place not in search.failed | search.served | search.ruled_out.keys()
        and costs[known[one]] == costs[first]
        and (known[one].host_bytes, known[one].stored) == (first.host_bytes, first.stored)
    ]
    trials.run(undecided)
    served = [one for one in worth if trials.serves(trials.known(one))]
    equal = [one for one in served if costs[known[one]] == costs[first]]
    return max(equal, key=lambda one: kept_of(trials.known(one)))


def _runner_up(
    answer: int, worth: Sequence[int], trials: Trials, costs: Mapping[Candidate, float]
) -> int | None:
    """The cheapest other one that was seen to serve. If there is none, the cheapest two that should
    serve are replayed."""
    known, likely = trials.candidates, trials.machines.likely
    cost, least = costs[known[answer]], likely(known[answer])
    others = [
        one
        for one in worth
        if one != answer and costs[known[one]] >= cost and not _is_more(known[one], known[answer])
    ]
    if not any(trials.serves(trials.known(one)) for one in others):
        trials.run([one for one in others if likely(known[one]) >= least][:_SECONDS])
    return next((one for one in others if trials.serves(trials.known(one))), None)


def _is_more(one: Candidate, answer: Candidate) -> bool:
    """Whether it is the answer with more replicas, host memory or a store."""
    return (
        one.machine == answer.machine
        and one.replicas >= answer.replicas
        and one.host_bytes >= answer.host_bytes
        and one.stored >= answer.stored
    )


def _by_chance(
    answer: int, runner_up: int | None, trials: Trials, error: float
) -> list[tuple[Candidate, str]]:
    """What may be the answer with another trace of the same traffic: cheaper ones that nearly
    serve, and if the answer hardly does, the next one."""
    attain = float(trials.attain)
    rivals = [
        one
        for one in range(answer)
        if (found := trials.known(one)) is not None
        and not trials.serves(found)
        and kept_of(found) + error >= attain
    ]
    if runner_up is not None and kept_of(trials.known(answer)) - error < attain:
        rivals.append(runner_up)
    return [(trials.candidates[one], SAMPLE) for one in rivals] if error else []


def _reasons(
    worth: Sequence[int],
    search: Search,
    offered: Offered,
    trials: Trials,
    answer: int | None,
) -> dict[int, str]:
    """Why candidates were not replayed."""
    known, found = offered.candidates, dict[int, str]()
    for more, less in offered.same_as.items():
        found[more] = f"hits what {known[less].label} hits"
    for place, by in search.ruled_out.items():
        one = worth[place]
        why = trials.cannot(known[one])
        found[one] = why if by == place else f"weaker than {known[worth[by]].label}"
    for one in range(len(known)):
        if answer is not None and one > answer:
            found.setdefault(one, "costs more")
    return found


# -- what would change it


def pass_error(found: Document) -> tuple[float, bool]:
    """The error to expect of the time of a pass, and whether it was judged; else it is assumed."""
    stated = (found.get("expected_error") or {}).get("tpot") or {}
    judged = bool(stated.get("runs"))
    return max(0.01, round(stated["median"] if judged else _UNKNOWN_ERROR, 2)), judged


Wanted = tuple[str, Fraction, int, Moved]  # what, the factor, the candidate


class _Looks:
    """The answer and its rivals with more and less to do. More work never helps, so the answer
    changes upward only where it no longer serves itself, and downward only where something cheaper
    does. part: of the trace that is replayed; None for all."""

    def __init__(self, answer: int, trials: Trials, part: Fraction | None) -> None:
        self._answer, self._trials, self._part = answer, trials, part
        self._more = 1.0  # so many times as many requests miss the limits of all as of the part

    def look(self, wanted: Sequence[Wanted]) -> list[Seen]:
        """What an interrupt left out is missing."""
        trials, part = self._trials, self._part
        moves = [(one, partial(part_of, rate=part, move=move)) for *_, one, move in wanted]
        found = trials.moved(moves, whole=part is not None)
        seen = []
        for (what, factor, one, _), document in zip(wanted, found, strict=True):
            if document is not None:
                kept = 1 - self._more * (1 - kept_of(document))
                serves = trials.serves(document) if part is None else kept >= trials.attain
                seen.append(Seen(what, factor, trials.candidates[one], serves, kept, document))
        return seen

    def sensitivity(self, seeds: Sequence[int], is_log: bool, work: float) -> Sure:
        """seeds: of other draws. is_log: whether which tokens prompts share was assumed. work: the
        part of the work that the error of a sampled trace may add or spare, as passes that take so
        much longer or shorter would."""
        trials, answer = self._trials, self._answer
        document = trials.known(answer)
        assert document is not None
        sure = Sure(*pass_error(document), document["slo"]["attained_error"])
        error = Fraction(f"{sure.error:.2f}") + Fraction(ceil(100 * work), 100)
        as_it_is = Seen(PASSES, Fraction(1), trials.candidates[answer], True, kept_of(document), {})
        if self._part is not None:
            for own in self.look([(PASSES, Fraction(1), answer, lambda named: named)]):
                sure.probed = own.document["whole"]["requests"]
                self._more = (1 - as_it_is.kept) / max(1 - own.kept, 1 / sure.probed)
        rivals = self._rivals()
        wanted: list[Wanted] = [
            *((DRAW, Fraction(1), answer, partial(drawn, seed=seed)) for seed in seeds),
            _moved(PASSES, 1 + error, answer),
            _moved(LOAD, MORE, answer),
        ]
        if is_log:
            wanted += [
                (what, Fraction(1), answer, partial(sharing, how=what.split()[-1]))
                for what in SHARING
            ]
        for one in rivals:
            wanted.append(_moved(PASSES, max(_LEAST, 1 - error), one))
        sure.tried = self.look(wanted)
        seen = {
            what: {Fraction(1): as_it_is}
            | {
                one.factor: one
                for one in sure.tried
                if one.what == what and one.candidate is as_it_is.candidate
            }
            for what in _MOVERS
        }
        self._narrow(seen)
        if not trials.ended.over:
            sure.flips = self._flips(seen)
        for look in sure.tried:
            if look.candidate is not as_it_is.candidate and look.serves and look.what == PASSES:
                sure.rivals.append((look.candidate, PASSES))
        for flip in sure.flips:
            if flip.what == PASSES and flip.at is not None and flip.at <= 1 + error and flip.to:
                sure.rivals.append((flip.to, PASSES))
        if any(one.what == DRAW and not one.serves for one in sure.tried):
            sure.rivals += [(flip.to, DRAW) for flip in sure.flips[:1] if flip.to]
        sure.rivals = list(dict.fromkeys(sure.rivals))
        return sure

    def _rivals(self) -> list[int]:
        """The strongest of those that are cheaper and fail, the nearest to serving first."""
        trials = self._trials
        known, weaker = trials.candidates, trials.machines.weaker
        tried = [
            one
            for one in range(self._answer)
            if trials.known(one) is not None and not trials.serves(trials.known(one))
        ]
        strongest = [
            one
            for one in tried
            if not any(other != one and weaker(known[one], known[other]) for other in tried)
        ]
        return sorted(strongest, key=lambda one: -kept_of(trials.known(one)))[:_MOST_RIVALS]

    def _narrow(self, seen: Mapping[str, dict[Fraction, Seen]]) -> None:
        """Tries the answer with more to do until it is known to 5 % from where it does not
        serve."""
        for _ in range(_MOST_ROUNDS):
            wanted = [
                _moved(what, factor, self._answer)
                for what, known in seen.items()
                for factor in factors_to_try(known, self._trials.attain)
            ]
            if not wanted or self._trials.ended.over:
                return
            for one in self.look(wanted):
                seen[one.what][one.factor] = one

    def _flips(self, seen: Mapping[str, Mapping[Fraction, Seen]]) -> list[Flip]:
        """Where the answer no longer serves, and a candidate that does: the cheapest that is
        clearly likelier to serve than the answer."""
        trials, known = self._trials, self._trials.candidates
        likely = trials.machines.likely
        least = likely(known[self._answer]) * _CLEARLY
        stronger = [
            one for one in range(self._answer + 1, len(known)) if likely(known[one]) >= least
        ][:1]
        ends = {what: _ends(one) for what, one in seen.items()}
        wanted = [_moved(what, at, one) for what, (_, at) in ends.items() if at for one in stronger]
        to = {one.what: one.candidate for one in self.look(wanted) if one.serves}
        return [Flip(what, holds, at, to.get(what)) for what, (holds, at) in ends.items()]


def _moved(what: str, factor: Fraction, one: int) -> Wanted:
    return what, factor, one, partial(_MOVERS[what], factor=factor)


def factors_to_try(known: Mapping[Fraction, Seen], attain: Fraction) -> list[Fraction]:
    """The next factors: on both sides of where a line through what is known meets the part that is
    asked for. None if that is known to 5 %, or lies beyond what is looked at."""
    low, high = _ends(known)
    if low >= _MOST or (high is not None and high <= low * Fraction(_WITHIN)):
        return []
    least = low * Fraction(101, 100)
    most = Fraction(_MOST) if high is None else high * Fraction(100, 101)
    other = high if high is not None else max((one for one in known if one < low), default=None)
    at = float(low) * _STEP
    if other is not None:
        slope = (known[other].kept - known[low].kept) / float(other - low)
        if slope < 0:
            at = float(low) + (float(attain) - known[low].kept) / slope
    if len(known) > _FEW and high is not None:
        at = sqrt(low * high)
    near = sqrt(_WITHIN) * 0.999
    both = (min(max(float(least), one), float(most)) for one in (at / near, at * near))
    found = {Fraction(f"{one:.{_DIGITS}g}") for one in both}
    return sorted(one for one in found if one not in known and low < one and one != high)


def _ends(known: Mapping[Fraction, Seen]) -> tuple[Fraction, Fraction | None]:
    """The largest factor that is served below all that are not, and the smallest of these."""
    high = min((factor for factor, one in known.items() if not one.serves), default=None)
    return max(
        factor for factor, one in known.items() if one.serves and (high is None or factor < high)
    ), high
