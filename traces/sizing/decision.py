"""The cheapest machine that serves the whole trace within its limits, and what would change that.

    search       replays of candidates until the cheapest that serves is known (see trials)
    runner-up    the cheapest other one that was seen to serve and is not the answer with more
    confidence   both with other arrivals, times and loads (see confidence)

Of a long trace a part is replayed (see sampling). Does not word anything (see deciding/answer) or
print (see buying).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hicache.core.errors import CallerError

from ..curves.curves import CurveOptions, Curves, curves_of
from ..curves.distances import Curve
from ..deciding.prices import LIST_PRICES, Prices
from ..formats.base import Paged, Trace
from ..replaying.config import ReplayConfig as Settings
from ..replaying.options import ReplayOptions
from ..reporting import timestamps
from ..sweeping.grid import check_simulated
from ..sweeping.work import How, Measured, Traces, opened_once
from ..terminal.streams import print_error
from ..terminal.workers import cores
from . import plan, sampling
from .candidates import Candidate, Demand, Machines, cost_of, demand_of, every
from .confidence import SAMPLE, Sure, how_sure
from .replays import Document, Replays, kept_of
from .trials import Search, Trials, as_it_is

ATTAIN = Fraction(9, 10)  # of the requests, as DistServe (OSDI 2024) counts
_HOST_OF_A_GPU = 256 * 10**9  # bytes; a DGX H100 has 2 TB for eight, says its data sheet
_HOSTS = 3  # sizes of host memory beside none
_NOT_HARDWARE = ("gpu", "host", "storage")
_SIDE_BY_SIDE = 8  # trials in a round; the same on every machine, and so are the replays
_SECONDS = 2  # replays for the runner-up
_RANKS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for beside the replay. hardware, tp, replicas, hosts (bytes of a replica):
    None to choose them. pp: None for one stage. most_gpus: of one candidate. draws: of the
    arrivals. today: the machine that there is. budget_s: seconds, to choose the part; None
    without."""

    hardware: Sequence[str] | None
    tp: Sequence[int] | None
    pp: Sequence[int] | None
    replicas: Sequence[int] | None
    hosts: Sequence[int] | None
    most_gpus: int
    prices: Prices | None
    attain: Fraction
    draws: int
    today: Candidate | None
    how: How
    budget_s: float | None = None


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
    """What was replayed of the trace. rate: the part; 1 for all. requests: how many. error: of hit
    rates at the memory of the candidates; None where all was replayed, and for a trace of lengths
    only. work: so much of the work of the answer depends on the largest of these errors. kept: the
    error of the part of the requests that keep the limits with the answer; None where there is
    none, or all was replayed."""

    rate: Fraction
    requests: int
    error: sampling.Error | None = None
    work: float = 0.0
    kept: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """See the module. options: of every replay. rows: every candidate, the cheapest first. refused:
    machines that cannot run the model, by reason. answer, runner_up, today: places in `rows`. sure:
    without content where nothing serves. searched: replays until the answer was known, of
    `replays`. spread: whether a coarse clock was spread although nobody
    asked for it. part: of the trace that was replayed."""

    trace: Trace
    paged: Paged
    settings: Settings
    options: ReplayOptions
    curves: Curves | None
    demand: Demand
    prices: Prices
    attain: Fraction
    rows: Sequence[Row]
    refused: Mapping[str, Sequence[str]]
    answer: int | None
    runner_up: int | None
    today: int | None
    sure: Sure
    spread: bool
    searched: int
    replays: int
    ended: Measured
    part: Part


def decision(given: ReplayOptions, asked: Asked, command: str) -> Decision:
    """Runs everything. Raises CallerError for what cannot be run, before the first replay."""
    check_simulated(given.storage)
    traces = Traces()
    base = replace(given, check=given.check or "off", seed=given.seed or 1, sample=None)
    base, spread = spread_of(base, traces)
    trace = traces(plan.bare(base))
    prices = asked.prices or LIST_PRICES
    offered = _Offered(base, asked, trace, prices)
    demand = offered.demand
    part = _part(given, asked, base, traces, offered)
    known, machines = offered.candidates, offered.machines
    played = base if part.rate == 1 else replace(base, sample=part.rate)
    replays = Replays(asked.how, command, played, attain=asked.attain)
    trials = Trials(known, played, machines, replays, asked.attain, _SIDE_BY_SIDE)
    worth = offered.worth_replaying()
    search = trials.search(worth, demand.requests)
    answer = None if trials.over else _best(worth, search, trials, offered.costs)
    searched = replays.count
    runner_up = (
        None if answer is None else _runner_up(answer, worth, trials, machines, offered.costs)
    )
    today = None if asked.today is None else known.index(asked.today)
    if today is not None:
        trials.documents([(today, as_it_is)])
    documents = [trials.known(one) for one in range(len(known))]
    sure = Sure()
    if answer is not None and not trials.over:
        found = documents[answer]
        assert found is not None
        seeds = range(base.seed + 1, base.seed + asked.draws)  # type: ignore[operator]
        is_log = trace.identity and base.columns is not None and base.sharing is None
        if part.rate < 1:
            kept = found["slo"]["attained_error"]
            part = replace(part, work=_work(part, known[answer], machines, demand), kept=kept)
        sure = how_sure(answer, found, documents, trials, machines, seeds, is_log, part.work)
        if part.kept is not None:
            sure.rivals += _drawn_otherwise(answer, runner_up, documents, trials, part.kept)
    why = _reasons(worth, search, offered, trials, answer)
    rows = [
        Row(
            candidate,
            offered.costs[candidate],
            document,
            None if document is None else trials.serves(document),
            "" if document is not None else why.get(place, ""),
        )
        for place, (candidate, document) in enumerate(zip(known, documents, strict=True))
    ]
    return Decision(
        *(trace, offered.paged, offered.settings, base, offered.curves, demand, prices),
        *(asked.attain, rows, offered.refused, answer, runner_up, today, sure),
        *(spread, searched, replays.count, replays.ended, part),
    )


def spread_of(
    base: ReplayOptions, traces: Callable[[ReplayOptions], Trace]
) -> tuple[ReplayOptions, bool]:
    """The options with --spread, with which a seed draws arrivals; whether the clock of the trace
    is coarse and nobody asked for that."""
    if base.spread is not None or base.arrivals is not None or base.concurrency is not None:
        return base, False
    if traces(base).jobs.sender is not None:
        return base, False
    return replace(base, spread=True), timestamps.is_coarse(traces(base).jobs)


def _part(
    given: ReplayOptions, asked: Asked, base: ReplayOptions, traces: Traces, offered: _Offered
) -> Part:
    """What to replay. Keeps the trace, or the part, where replays look for it."""
    trace, size, rate = offered.trace, offered.paged.page_size, given.sample or Fraction(1)
    if asked.budget_s is not None:
        workers = asked.how.jobs or cores()
        rate = sampling.part_for(asked.budget_s, trace, size, sampling.SEARCH, workers)
    elif given.sample is None and sampling.takes_hours(trace, size):
        print_error(
            f"{trace.path}: the search replays all of its {len(trace.jobs):,} requests, "
            "which takes hours; --sample 0.25 replays a quarter of the sessions, and says the error"
        )
    played = sampling.hold(base, traces.recorded(base), rate)
    if rate == 1:
        return Part(rate, len(trace.jobs))
    some, error = opened_once(played), None
    if offered.curves is not None:
        sizes = [offered.machines.pages(one) for one in offered.candidates]
        ends = min(sizes), max(sizes)
        error = sampling.error_of(trace, some, offered.curves.lru, size, ends)
    return Part(rate, len(some.jobs), error)


def _work(part: Part, answer: Candidate, machines: Machines, demand: Demand) -> float:
    """How much more there is to compute if the answer hits less by the largest error."""
    if part.error is None or not demand.input_tokens:
        return 0.0
    hits = machines.hits(answer) / demand.input_tokens
    return part.error.largest / max(part.error.largest, 1 - hits)


def _drawn_otherwise(
    answer: int,
    runner_up: int | None,
    documents: Sequence[Document | None],
    trials: Trials,
    error: float,
) -> list[tuple[Candidate, str]]:
    """What may be the answer with another part of the trace: cheaper ones that nearly serve, and if
    the answer hardly does, the next one."""

    def most(one: int) -> float:
        return kept_of(documents[one]) + error

    attain = float(trials.attain)
    failed = [one for one in range(answer) if documents[one] and not trials.serves(documents[one])]
    rivals = [one for one in failed if most(one) >= attain]
    if runner_up is not None and kept_of(documents[answer]) - error < attain:
        rivals.append(runner_up)
    return [(trials.candidates[one], SAMPLE) for one in rivals]


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
    trials.documents([(one, as_it_is) for one in undecided])
    served = [one for one in worth if trials.serves(trials.known(one))]
    equal = [one for one in served if costs[known[one]] == costs[first]]
    return max(equal, key=lambda one: (trials.known(one) or {})["slo"]["attained_rate"])


def _runner_up(
    answer: int,
    worth: Sequence[int],
    trials: Trials,
    machines: Machines,
    costs: Mapping[Candidate, float],
) -> int | None:
    """The cheapest other one that was seen to serve. If there is none, the cheapest two that served
    the beginning, or should serve, are replayed."""
    known = trials.candidates
    cost, odds = costs[known[answer]], machines.likely(known[answer])
    others = [
        one
        for one in worth
        if one != answer and costs[known[one]] >= cost and not _is_more(known[one], known[answer])
    ]
    if not any(trials.serves(trials.known(one)) for one in others):
        likely = [
            one for one in others if one in trials.promising or machines.likely(known[one]) >= odds
        ]
        trials.documents([(one, as_it_is) for one in likely[:_SECONDS]])
    return next((one for one in others if trials.serves(trials.known(one))), None)


def _is_more(one: Candidate, answer: Candidate) -> bool:
    """Whether it is the answer with more replicas, host memory or a store."""
    return (
        one.machine == answer.machine
        and one.replicas >= answer.replicas
        and one.host_bytes >= answer.host_bytes
        and one.stored >= answer.stored
    )


class _Offered:
    """The candidates, the cheapest first, and what is known of them without a replay."""

    def __init__(self, base: ReplayOptions, asked: Asked, trace: Trace, prices: Prices) -> None:
        hardware = list(asked.hardware or _priced(prices))
        most_gpus, stages = asked.most_gpus, asked.pp or (1,)
        shapes = [
            (tp, pp)
            for pp in stages
            for tp in asked.tp or [tp for tp in _RANKS if tp * pp <= most_gpus]
        ]
        if not shapes:
            raise CallerError(
                f"--pp: expected stages for the {most_gpus} GPUs of a machine (--most-gpus), found "
                f"{min(stages)}, each on one at least; use fewer, or raise --most-gpus"
            )
        splits = [
            (tp, pp, count)
            for tp, pp in shapes
            for count in asked.replicas or range(1, max(1, most_gpus // (tp * pp)) + 1)
        ]
        self.trace = trace
        none = Demand(0, 0, 0, 0.0, 0)
        ranks_of_least, self.settings = _least(Machines(base, trace, none, None), hardware, shapes)
        settings = self.settings
        self.paged = trace.paged(settings.core.page_size)
        page_bytes = settings.host_page_bytes[0] * settings.page_ranks
        device = settings.core.device_pages[0]
        self.curves: Curves | None = None
        curve: Curve | None = None
        hosts = asked.hosts or (0,)
        if trace.identity:
            each = page_bytes // self.paged.page_size
            options = CurveOptions(device_pages=device, bytes_per_token=each)
            self.curves = curves_of(trace, self.paged, options)
            curve = self.curves.lru
            if asked.hosts is None:
                most = _HOST_OF_A_GPU * ranks_of_least
                tokens = trace.jobs.input_tokens
                hosts = _hosts(curve, tokens, page_bytes, device, most, bool(base.exclusive))
        speed = None if base.concurrency else base.speed or Fraction(1)
        self.demand = demand = demand_of(trace, curve, speed)
        self.machines = Machines(base, trace, demand, curve)
        stored = (False, True) if base.storage is not None else (False,)
        found, self.refused = every(hardware, splits, hosts, stored, self.machines)
        if asked.today is not None and asked.today not in found:
            self.machines.settings(*asked.today.machine)
            found.append(asked.today)
        kept = base.storage_size or (0 if curve is None else curve.unique * page_bytes)
        self.costs = {one: cost_of(one, prices, kept) for one in found}
        # of several at one cost, the one that is likeliest to serve comes first
        likely, costs = self.machines.likely, self.costs
        self.candidates = sorted(found, key=lambda one: (costs[one], -likely(one), one.label))
        self.same_as: dict[int, int] = {}

    def worth_replaying(self) -> list[int]:
        """All but those whose host memory adds no hits to a cheaper one that is the same
        otherwise."""
        known = self.candidates
        groups: dict[Candidate, list[int]] = {}
        for place, one in enumerate(known):
            groups.setdefault(replace(one, host_bytes=0), []).append(place)
        for places in groups.values():
            ordered = sorted(places, key=lambda place: known[place].host_bytes)
            for at, more in enumerate(ordered):
                for less in ordered[:at]:
                    if less not in self.same_as and self.machines.same_hits(
                        known[less], known[more]
                    ):
                        self.same_as[more] = less
                        break
        return [place for place in range(len(known)) if place not in self.same_as]


def _priced(prices: Prices) -> list[str]:
    """The accelerators with a price of their own; with a price of any, those of the list."""
    own = [name for name in prices.per_hour if name not in _NOT_HARDWARE]
    return sorted(own or [one for one in LIST_PRICES.per_hour if one not in _NOT_HARDWARE])


def _least(
    machines: Machines, hardware: Sequence[str], shapes: Sequence[tuple[int, int]]
) -> tuple[int, Settings]:
    """The machine with the least device memory that can serve the trace: its ranks and settings.
    shapes: tp and pp. Raises CallerError if none can."""
    found: list[tuple[int, int, str, int, int]] = []
    refused: CallerError | None = None
    for name in hardware:
        for tp, pp in shapes:
            try:
                pages = machines.settings(name, tp, pp).core.device_pages[0]
                found.append((pages, tp * pp, name, tp, pp))
            except CallerError as error:
                refused = error
    if not found:
        raise refused or CallerError("--tp: expected at least one number of ranks, found none")
    _, ranks, name, tp, pp = min(found)
    return ranks, machines.settings(name, tp, pp)


def _hosts(
    curve: Curve, input_tokens: int, page_bytes: int, device: int, most: int, exclusive: bool
) -> tuple[int, ...]:
    """None, and sizes of the ladder (see plan) up to what a server has for so many ranks."""
    steps = plan.ladder(curve, input_tokens, page_bytes, device, exclusive)
    sizes = [size for size in steps if size <= most]
    if steps and len(sizes) < _HOSTS:
        sizes = sorted({*sizes, most // 4, most // 2, most})
    return (0, *sizes[-_HOSTS:])


def _reasons(
    worth: Sequence[int],
    search: Search,
    offered: _Offered,
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
