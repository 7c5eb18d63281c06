"""Counts what hit in a replay: tokens by tier and turn, what ended the hit of each request, and the
ceiling of a cache without a limit. At the end: times of requests, and which limits they keep.

Only the first admission of a request counts; one that was retracted and admitted again is not
counted twice.

    token-weighted      hit tokens / prompt tokens                  long requests count more
    block-weighted      hit pages / prompt pages; a partial page counts as one
    mean per request    the mean of each request's token-weighted rate
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import (
    Admitted,
    Backup,
    Evicted,
    Load,
    Lookup,
    Outcome,
    Prefetched,
    Refused,
    Store,
)
from hicache.core.events import Arrived, Event
from hicache.core.types import BACKBONE, NO_PAGES, Tier
from hicache.core.view import CoreView
from sim.engine.sequence import RequestResult, Times
from sim.fleet import FleetResult
from sim.replica import TimedResult

from ..formats.base import Jobs, Paged
from ..results import record
from ..results.record import NOT_FOLLOWED, PERCENTS, Share, Spread, Tiers, Turn
from .traffic import NS_PER_S, Slo, by_session

Tokens: TypeAlias = NDArray[np.int32]  # one count for each request; below 2**24 (formats/base)

_NOT_ADMITTED = -1
_BITS = (1 << np.arange(8)).astype(np.uint8)


class Account:
    """Hits of each request of a trace. ceiling: tokens per request, from `ceiling_of`."""

    def __init__(self, jobs: Jobs, page_size: int, ceiling: Tokens) -> None:
        self._page_size = page_size
        self._ceiling = ceiling
        self._input = jobs.input_lengths
        self._device, self._host, self._storage = (
            array("i", [_NOT_ADMITTED]) * len(jobs) for _ in range(3)
        )

    def admit(self, index: int, device: int, host: int, storage: int = 0) -> None:
        """Records the prompt tokens that request `index` hit on each tier when it was admitted."""
        if self._device[index] == _NOT_ADMITTED:
            self._device[index] = device
            self._host[index] = host
            self._storage[index] = storage

    def total(self) -> Share:
        """Sums over all requests that were served."""
        return self._share(self.all_served())

    def steady(self) -> Share:
        """Sums over the second half of the served requests, in the order of the trace, with the
        middle one of an odd number."""
        served = self.all_served()
        return self._share(served[len(served) // 2 :])

    def served(self, index: int) -> bool:
        return self._device[index] != _NOT_ADMITTED

    def all_served(self) -> NDArray[np.int64]:
        """The requests that were admitted, in the order of the trace."""
        return np.flatnonzero(np.asarray(self._device) != _NOT_ADMITTED)

    def rows(self) -> Iterator[dict[str, Any]]:
        """What each served request hit, in the order of the trace, as fields of `Request`."""
        for index in self.all_served().tolist():
            hits = Tiers(self._device[index], self._host[index], self._storage[index])
            tokens, ceiling = int(self._input[index]), int(self._ceiling[index])
            yield {
                "request": index,
                "input_tokens": tokens,
                "hit_tokens": hits,
                "computed_tokens": tokens - hits.all,
                "ceiling_tokens": ceiling,
                "first_seen_tokens": tokens - ceiling,
                "lost_tokens": max(0, ceiling - hits.all),
            }

    def by_turn(self, turns: NDArray[np.int32]) -> list[Turn]:
        """One entry for each turn of served requests; empty if no request continues another."""
        served, result = self.all_served(), []
        for turn in np.unique(turns[served]).tolist() if turns.any() else ():
            share = self._share(served[turns[served] == turn])
            hits = share.hit_tokens.all
            result.append(Turn(turn + 1, share.requests, share.input_tokens, hits, share.hit_rate))
        return result

    def _share(self, served: NDArray[np.int64]) -> Share:
        """Sums over these requests."""
        count, inputs, ceiling = len(served), self._input[served], self._ceiling[served]
        tiers = [np.asarray(tier)[served] for tier in (self._device, self._host, self._storage)]
        hit = tiers[0] + tiers[1] + tiers[2]
        hits, total, most = Tiers(*map(_sum, tiers)), _sum(inputs), _sum(ceiling)
        return Share(
            requests=count,
            input_tokens=total,
            hit_tokens=hits,
            computed_tokens=total - hits.all,
            hit_rate=hits.all / (total or 1),
            hit_rate_pages=self._pages(hit) / (self._pages(inputs) or 1),
            hit_rate_mean=float((hit / inputs).sum()) / (count or 1),
            ceiling_tokens=most,
            ceiling_rate=most / (total or 1),
            first_seen_tokens=total - most,
            lost_tokens=_sum(np.maximum(ceiling - hit, 0)),
        )

    def _pages(self, tokens: Tokens) -> int:
        return _sum(-(-tokens // self._page_size))


def _sum(tokens: Tokens) -> int:
    return int(tokens.sum(dtype=np.int64))


def ceiling_of(trace: Paged, whole_prompts: bool) -> Tokens:
    """Prompt tokens that an unbounded cache would hit, per request: the leading pages seen before.

    whole_prompts: whether the last prompt token may hit (`hits` mode), or must be computed (`timed`
    mode: an engine needs its logits).
    """
    size = trace.page_size
    seen = np.zeros(1 << 13, dtype=np.uint8)  # one bit a page
    ceiling = np.zeros(len(trace.jobs), dtype=np.int32)
    for job in trace.jobs:
        chain = trace.chain(job)
        if not len(chain):
            continue
        places, bits = chain >> 3, _BITS[chain & 7]
        largest = int(places.max())
        if largest >= len(seen):
            seen = np.concatenate((seen, np.zeros(max(len(seen), largest + 1), dtype=np.uint8)))
        known = (seen[places] & bits) != 0
        leading = int(known.argmin())  # all behind a page that is new are new
        leading = len(chain) if known[leading] else leading
        if whole_prompts:
            pages = min(leading, int(trace.prompt_pages[job.index]))  # that the trace identifies
            ceiling[job.index] = min(pages * size, job.input_length)
        else:
            ceiling[job.index] = min(leading, (job.input_length - 1) // size) * size
        if leading < len(chain):
            np.bitwise_or.at(seen, places[leading:], bits[leading:])
    return ceiling


# -- turns of conversations


def conversations(full: Paged) -> tuple[NDArray[np.int32], str]:
    """The turn of each request, from 0, and what tells it: after or session.

    In a closed loop, a request is the next turn of another one if it waits for the end of that one
    and its prompt begins with that one's prompt; requests that only queue behind others are not
    turns. Where nothing waits, the sessions of the trace tell the turns.
    """
    jobs = full.jobs
    turns = np.zeros(len(jobs), dtype=np.int32)
    if not (jobs.afters >= 0).any():
        for index, earlier in enumerate(by_session(jobs).tolist()):
            turns[index] = turns[earlier] + 1 if earlier >= 0 else 0
        return turns, "session"
    for index in np.flatnonzero(jobs.afters >= 0).tolist():
        job = jobs[index]
        before = jobs[job.after]
        history = full.chain(before)[: before.input_length // full.page_size]
        repeated = full.chain(job)[: len(history)]
        longer = job.input_length > before.input_length
        if len(history) and longer and np.array_equal(history, repeated):
            turns[index] = turns[job.after] + 1
    return turns, "after"


# -- what moved and what was refused


class Tally:
    """Counts, of several replicas together where it is given to all.

    loaded, backed_up: pages by component. evicted: pages by (tier, component). refused: how often,
    by (reason, component). lookups, stores: in storage. ended: by reason how many prefetches did,
    and the pages that they asked for, found and fetched. fetched: by request, the first page of its
    prefetch and how many it brought.
    """

    def __init__(self) -> None:
        self.loaded: Counter[str] = Counter()
        self.backed_up: Counter[str] = Counter()
        self.evicted: Counter[tuple[Tier, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.lookups = self.stores = 0
        self.ended = defaultdict[str, Counter[str]](Counter)
        self.fetched: dict[int, tuple[int, int]] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Counts nothing: only outcomes count."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Evicted):
                self.evicted[outcome.tier, outcome.component] += len(outcome.pages)
            elif isinstance(outcome, (Load, Backup)):
                moved = self.loaded if isinstance(outcome, Load) else self.backed_up
                for copy in outcome.copies:
                    moved[copy.component] += len(copy.target)
            elif isinstance(outcome, Refused):
                self.refused[outcome.reason, outcome.component] += 1
            elif isinstance(outcome, (Lookup, Store)):
                self.lookups += isinstance(outcome, Lookup)
                self.stores += isinstance(outcome, Store)
            elif isinstance(outcome, Prefetched):
                self.fetched[outcome.request] = outcome.first_page, outcome.fetched_pages
                self.ended[outcome.reason or COMPLETE].update(
                    requests=1,
                    asked_pages=outcome.asked_pages,
                    found_pages=outcome.found_pages,
                    fetched_pages=outcome.fetched_pages,
                )


# -- what ended a hit

COMPLETE, FIRST_SEEN, TOGETHER, NOT_LOADED = "complete", "first_seen", "together", "not_loaded"
EVICTED, NOT_READY = "evicted", "not_ready"
NOT_HERE, BETWEEN = "not_here", "between_states"
NOBODY = -1


class Miss(NamedTuple):
    """What ended the hit of one request at its first admission, after so many pages: at the deepest
    boundary at which every component is valid.

        complete            the whole prompt hit
        first_seen          no earlier request of the trace shares more
        evicted, not_ready  the rest left the cache, or an earlier request was still computing it;
                            one word for both where nobody asked
        not_here            only other replicas have computed the rest
        between_states      the rest is less than the distance of two states, where an engine keeps
                            none where prompts part
        a component         it ended there alone: no window or no state
        together            several components ended there, or no boundary suits all
        not_loaded          a load was left out

    last_seen: the latest earlier request of the same replica with the page behind the hit.
    """

    ended_by: str
    hit: int
    last_seen: int = NOBODY


class Misses:
    """The observer of admissions. ceiling: pages per request that an unbounded cache would hit.
    rows: by request, of all replicas. distance: of states, in pages, where nothing else makes a
    boundary."""

    def __init__(
        self,
        components: Sequence[str],
        ceiling: NDArray[np.int32],
        rows: dict[int, Miss],
        distance: int = 1,
    ) -> None:
        self._components = tuple(components)
        self._ceiling = ceiling
        self.rows = rows
        self._distance = distance
        self._wanted: dict[int, int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        if type(event) is Arrived:
            self._wanted[event.request] = min(event.match_pages, event.key.pages)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if type(outcome) is Admitted and outcome.request not in self.rows:
                self.rows[outcome.request] = self._miss(outcome)

    def _miss(self, admitted: Admitted) -> Miss:
        request, depths = admitted.request, admitted.depths
        wanted = self._wanted.pop(request, admitted.matched_pages)
        hit, least = admitted.device_pages + admitted.host_pages, min(depths)
        if hit and hit >= wanted:
            return Miss(COMPLETE, hit)
        if hit >= depths[BACKBONE]:
            ceiling = int(self._ceiling[request])
            if hit >= ceiling:
                return Miss(FIRST_SEEN, hit)
            number = ceiling - ceiling % self._distance
            return Miss(BETWEEN if hit == number else NOT_FOLLOWED, hit)
        if len(depths) == 1:
            return Miss(NOT_LOADED, hit)
        alone = hit == least and depths.count(least) == 1
        return Miss(self._components[depths.index(least)] if alone else TOGETHER, hit)


def seen_before(
    paged: Paged,
    misses: dict[int, Miss],
    results: Mapping[int, RequestResult],
    choices: Mapping[int, int],
) -> None:
    """Tells what left the cache from what was still being computed. results: with a clock, by
    request. choices: the replica of each request, where there are several."""
    # by replica: the last request that has each page
    latest = defaultdict[int, NDArray[np.int32]](lambda: np.full(1 << 12, NOBODY, dtype=np.int32))
    for job in paged.jobs:
        chain, place = paged.chain(job), choices.get(job.index, 0)
        known = latest[place]
        if (more := int(chain.max(initial=-1)) + 1 - len(known)) > 0:
            more = max(more, len(known))
            known = latest[place] = np.pad(known, (0, more), constant_values=NOBODY)
        miss = misses.get(job.index)
        if miss is not None and miss.ended_by == NOT_FOLLOWED:
            before, ended_by = int(known[chain[miss.hit]]), EVICTED
            request, other = results.get(job.index), results.get(before)
            if before == NOBODY:
                ended_by = NOT_HERE
            elif request and (other is None or other.first_token_ns > request.admit_ns):
                ended_by = NOT_READY
            misses[job.index] = Miss(ended_by, miss.hit, before)
        known[chain] = job.index


# -- times of the requests that ended

Kept: TypeAlias = NDArray[np.bool_]
_COLUMNS = (
    *("request", "arrival_ns", "first_token_ns", "finish_ns", "output_length"),
    *("queue_ns", "load_ns", "compute_ns"),
)


def spread(times_ns: Times, counts: Times | None = None) -> Spread:
    """Mean and percentiles in seconds; zeros without observations. counts: how often each time
    occurs; None for once."""
    if not len(times_ns):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    points: NDArray[Any]
    if counts is None:
        mean = float(times_ns.mean())
        points = np.percentile(times_ns, PERCENTS, method="inverted_cdf")
    else:
        order = np.argsort(times_ns)
        up_to = np.cumsum(counts[order])
        total = int(up_to[-1])
        mean = float(np.dot(times_ns[order].astype(np.float64), counts[order])) / total
        ranks = [-(-percent * total // 100) for percent in PERCENTS]
        points = times_ns[order][np.searchsorted(up_to, ranks)]
    return Spread(mean / NS_PER_S, *(float(point) / NS_PER_S for point in points))


class Latency:
    """Of each request that ended, in the order of the trace: int64 nanoseconds, and tokens.

    ttft_ns = queue_ns + load_ns + compute_ns: see RequestResult in sim/engine/sequence. decode_ns:
    from the first token to the last one.
    """

    def __init__(self, result: TimedResult | FleetResult) -> None:
        self.requests, self.makespan_ns = result.requests, result.makespan_ns
        rows = [[getattr(request, name) for name in _COLUMNS] for request in self.requests]
        columns = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS)).T
        self.numbers, self.arrivals_ns, first, finish, self.output_tokens, *parts = columns
        self.queue_ns, self.load_ns, self.compute_ns = parts
        self.ttft_ns, self.decode_ns = first - self.arrivals_ns, finish - first
        self._gaps = result.gaps

    @property
    def output(self) -> record.Output:
        tokens = int(self.output_tokens.sum())
        rate = tokens * NS_PER_S / self.makespan_ns if self.makespan_ns else 0.0
        return record.Output(tokens, rate)

    @property
    def figures(self) -> record.Times:
        """The distributions of the times."""
        gaps = [(NO_PAGES, NO_PAGES), *(gaps.weighted(self.numbers) for gaps in self._gaps)]
        times, counts = (np.concatenate(each) for each in zip(*gaps, strict=True))
        several = self.output_tokens > 1
        return record.Times(
            ttft=spread(self.ttft_ns),
            queue=spread(self.queue_ns),
            load=spread(self.load_ns),
            compute=spread(self.compute_ns),
            tpot=spread(self.decode_ns[several] // (self.output_tokens[several] - 1)),
            itl=spread(times, counts),
            makespan=self.makespan_ns / NS_PER_S,
        )

    def slower(self, limit_ns: int) -> Times:
        """How many of the times between two tokens of each request are longer than a limit."""
        most = int(self.numbers.max(initial=-1)) + 1
        none = np.zeros(most, dtype=np.int64)
        return sum((gaps.slower(limit_ns, most) for gaps in self._gaps), none)[self.numbers]


# -- limits


def missed(slo: Slo, ttft_ns: Any, decode_ns: Any, gaps: Any) -> dict[str, Any]:
    """Whether a request, or each of several, misses each limit but that of `itl`, by its name.
    Exact: no division. gaps: between its tokens."""
    times = {"ttft": ttft_ns, "tpot": decode_ns, "e2e": ttft_ns + decode_ns}
    most = {name: limit * (gaps if name == "tpot" else 1) for name, limit in slo.limits}
    return {name: times[name] > limit for name, limit in most.items() if name in times}


def kept(slo: Slo, latency: Latency) -> Mapping[str, Kept]:
    """Whether each request keeps each limit, by the name of the limit."""
    gaps = np.maximum(latency.output_tokens, 1) - 1
    result = missed(slo, latency.ttft_ns, latency.decode_ns, gaps)
    if slo.itl_ns is not None:  # the nearest rank: at most one gap in a hundred is longer
        result["itl"] = latency.slower(slo.itl_ns) > gaps // 100
    return {name: ~result[name] for name, _ in slo.limits}


class Hopeless:
    """Stops a replay of which too many requests missed a limit. slo: the limits, `itl` does not
    count. most: requests that may miss them.

    ended: requests that have ended. missed: how many of them missed a limit. stopped: whether the
    replay was stopped.
    """

    def __init__(self, slo: Slo, most: int) -> None:
        self._slo, self._most = slo, most
        self.ended = self.missed = 0
        self.stopped = False

    def __call__(self, result: RequestResult) -> bool:
        ttft_ns = result.first_token_ns - result.arrival_ns
        decode_ns, gaps = result.finish_ns - result.first_token_ns, max(1, result.output_length) - 1
        self.ended += 1
        self.missed += any(missed(self._slo, ttft_ns, decode_ns, gaps).values())
        self.stopped = self.missed > self._most
        return self.stopped
