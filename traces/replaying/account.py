"""Counts what hit in a replay: tokens by tier and turn, the match of each admission in every
component, prefetches and stores; and the ceiling of a cache without a limit.

Only the first admission of a request counts; one that was preempted and admitted again is not
counted twice.

    token-weighted      hit tokens / prompt tokens                  long requests count more
    block-weighted      hit pages / prompt pages; a partial page counts as one
    mean per request    the mean of each request's token-weighted rate
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.actions import Admitted, Evicted, Outcome, Prefetched, Store
from hicache.core.actions import Lookup as StorageLookup
from hicache.core.events import Arrived, Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from sim.workload import Job

from ..formats.base import Jobs, Paged, Trace
from ..results.record import NO_SHARE, Share, Tiers, Turn, share
from .load import by_prompt, by_session, numbered

Tokens: TypeAlias = NDArray[np.int32]  # one count for each request; below 2**24 (formats/base)

_NOT_ADMITTED = -1
NOTHING, UNSEEN, TOGETHER = "", "unseen", "together"
WHOLE = "complete"  # the reason of a prefetch that brought all it asked for
_BITS = (1 << np.arange(8)).astype(np.uint8)


class Row(NamedTuple):
    """What one request hit, in tokens; see results/record.Share."""

    request: int
    input_tokens: int
    ceiling: int
    device: int
    host: int
    storage: int

    @property
    def hit_tokens(self) -> int:
        return self.device + self.host + self.storage

    @property
    def first_seen(self) -> int:
        return self.input_tokens - self.ceiling

    @property
    def lost(self) -> int:
        return max(0, self.ceiling - self.hit_tokens)


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

    def whole(self) -> Share:
        """Sums over all requests that were served."""
        return self._share(steady=False)

    def steady(self) -> Share:
        """Sums over the second half of the served requests, in the order of the trace.

        It includes the middle one of an odd number.
        """
        return self._share(steady=True)

    def hit_tokens(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> tuple[int, int]:
        """(hit tokens, prompt tokens) of these requests."""
        wanted = np.asarray(indices, dtype=np.int64)
        tiers = [tier[wanted] for tier in self._tiers()]
        admitted = tiers[0] != _NOT_ADMITTED
        return sum(_sum(tier[admitted]) for tier in tiers), _sum(self._input[wanted])

    def _tiers(self) -> tuple[Tokens, Tokens, Tokens]:
        """The hits on each tier by request, where it was admitted."""
        return np.asarray(self._device), np.asarray(self._host), np.asarray(self._storage)

    def served(self, index: int) -> bool:
        return self._device[index] != _NOT_ADMITTED

    def all_served(self) -> NDArray[np.int64]:
        """The requests that were admitted, in the order of the trace."""
        return np.flatnonzero(np.asarray(self._device) != _NOT_ADMITTED)

    def rows(self) -> Iterator[Row]:
        """What each served request hit, in the order of the trace."""
        for index in self.all_served().tolist():
            yield Row(
                index,
                int(self._input[index]),
                int(self._ceiling[index]),
                self._device[index],
                self._host[index],
                self._storage[index],
            )

    def _share(self, steady: bool) -> Share:
        served = self.all_served()
        if not len(served):
            return NO_SHARE
        if steady:
            served = served[len(served) // 2 :]
        total, ceiling = self._input[served], self._ceiling[served]
        tiers = [tier[served] for tier in self._tiers()]
        hit = tiers[0] + tiers[1] + tiers[2]
        return share(
            len(served),
            _sum(total),
            Tiers(*map(_sum, tiers)),
            _sum(ceiling),
            _sum(np.maximum(ceiling - hit, 0)),
            self._pages(hit) / self._pages(total),
            float((hit / total).mean()),
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
    ceiling = np.zeros(int(trace.jobs.numbers.max(initial=-1)) + 1, dtype=np.int32)
    for job in trace.jobs:
        index = job.index
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
            ceiling[index] = min(leading * size, prompt_tokens(job, trace))
        else:
            ceiling[index] = min(leading, (job.input_length - 1) // size) * size
        if leading < len(chain):
            np.bitwise_or.at(seen, places[leading:], bits[leading:])
    return ceiling


def prompt_tokens(job: Job, trace: Paged) -> int:
    """Prompt tokens in pages that the trace identifies: all, or those in whole pages."""
    return min(job.input_length, int(trace.prompt_pages[job.index]) * trace.page_size)


# -- admissions in every component


class Lookup(NamedTuple):
    """The match of one request, in pages. A hit ends at the deepest boundary at which every
    component is valid.

    wanted: the most that it could reuse. depths: what each component would reach alone; that of
    full is how much of the prompt is known at all. lost: pages after the hit that are or were
    known. cap: what ended the hit:

        nothing    the whole prompt hit
        unseen     hit == depth of full, and no earlier request of the trace shares more
        full       hit == depth of full; the rest was evicted, or is still being computed
        another    hit == the depth of one component, and all others reach deeper: it has no
                   window or no state there
        together   several components end there, or no boundary up to the least depth suits all, or
                   a load was left out
    """

    request: int
    wanted: int
    device: int
    host: int
    depths: tuple[int, ...]
    cap: str
    lost: int

    @property
    def hit(self) -> int:
        return self.device + self.host


@dataclass(slots=True)
class Capped:
    """All lookups that one cause ended: their number, and the pages lost."""

    lookups: int = 0
    lost_pages: int = 0


class Lookups:
    """The observer of admissions. ceiling: pages per request that an unbounded cache would hit.

    by_request: the lookups. peak_pages: most device pages in use, by component. evicted_along: by
    component, pages that an event evicted although the pool had as many free pages afterwards:
    eviction removes whole leaves, so full attention may lose pages because states were needed.
    """

    def __init__(self, components: Sequence[str], ceiling: NDArray[np.int32]) -> None:
        self.components = tuple(components)
        self.by_request: dict[int, Lookup] = {}
        self.peak_pages = [0] * len(components)
        self.evicted_along = [0] * len(components)
        self._ceiling = ceiling
        self._wanted: dict[int, int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        if type(event) is Arrived:
            self._wanted[event.request] = min(event.match_pages, event.key.pages)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if not outcomes:
            return
        evicted: dict[str, int] = {}
        for outcome in outcomes:
            if type(outcome) is Admitted:
                if outcome.request not in self.by_request:
                    self.by_request[outcome.request] = self._lookup(outcome)
            elif type(outcome) is Evicted and outcome.tier == Tier.DEVICE:
                before = evicted.get(outcome.component, 0)
                evicted[outcome.component] = before + len(outcome.pages)
        for place, pool in enumerate(view.pools(Tier.DEVICE)):
            free = pool.free
            if pool.capacity - free > self.peak_pages[place]:
                self.peak_pages[place] = pool.capacity - free
            if pool.component in evicted:
                self.evicted_along[place] += min(evicted[pool.component], free)

    def alone(self) -> dict[str, int]:
        """Pages that each component alone would have reached, summed over the lookups."""
        rows = self.by_request.values()
        return {
            name: sum(row.depths[place] for row in rows)
            for place, name in enumerate(self.components)
        }

    def capped(self) -> dict[str, Capped]:
        """The lookups by what ended the hit."""
        found = {name: Capped() for name in (NOTHING, UNSEEN, *self.components, TOGETHER)}
        for row in self.by_request.values():
            found[row.cap].lookups += 1
            found[row.cap].lost_pages += row.lost
        return found

    def _lookup(self, admitted: Admitted) -> Lookup:
        wanted = self._wanted.pop(admitted.request, admitted.matched_pages)
        hit = admitted.device_pages + admitted.host_pages
        depths = admitted.depths
        lost = depths[0] - hit
        if hit >= wanted:
            cap = NOTHING
        elif hit >= depths[0]:
            lost = max(0, int(self._ceiling[admitted.request]) - hit)
            cap = self.components[0] if lost else UNSEEN
        elif hit < min(depths) or depths.count(min(depths)) > 1:
            cap = TOGETHER
        else:
            cap = self.components[depths.index(min(depths))]
        return Lookup(
            admitted.request,
            wanted,
            admitted.device_pages,
            admitted.host_pages,
            depths,
            cap,
            lost,
        )


# -- storage


@dataclass(slots=True)
class Ended:
    """Prefetches that ended for one reason: requests, and pages asked for, found and fetched."""

    requests: int = 0
    asked_pages: int = 0
    found_pages: int = 0
    fetched_pages: int = 0


class Prefetches:
    """Counts what prefetches and stores did. begun: lookups. ended: by reason. last: by request,
    how its prefetch ended. stores: how many were begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: dict[str, Ended] = {}
        self.last: dict[int, Prefetched] = {}
        self.stores = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        """Counts nothing: an event counts together with its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for outcome in outcomes:
            if isinstance(outcome, StorageLookup):
                self.begun += 1
            elif isinstance(outcome, Store):
                self.stores += 1
            elif isinstance(outcome, Prefetched):
                self.last[outcome.request] = outcome
                found = self.ended.setdefault(outcome.reason or WHOLE, Ended())
                found.requests += 1
                found.asked_pages += outcome.asked_pages
                found.found_pages += outcome.found_pages
                found.fetched_pages += outcome.fetched_pages

    def fetched(self, request: int) -> tuple[int, int]:
        """The first page of a request's prefetch, and how many pages it brought."""
        last = self.last.get(request)
        return (last.first_page, last.fetched_pages) if last is not None else (0, 0)


# -- turns of conversations


def conversations(trace: Trace, whole: Paged) -> tuple[NDArray[np.int32], str]:
    """The turn of each request, from 0, and what tells it: after, session or prompt. whole: the
    trace in pages, with all of its requests.

    In a closed loop, a request is the next turn of another one if it waits for the end of that one
    and its prompt begins with that one's prompt; requests that only queue behind others are not
    turns. Where nothing waits, the sessions of the trace tell the turns, and without sessions the
    prompts.
    """
    if (whole.jobs.afters >= 0).any():
        return turns_of(whole), "after"
    before = by_session(whole.jobs)
    if (before >= 0).any() or not trace.identity:
        return numbered(before), "session"
    size = trace.block_size or whole.page_size
    return numbered(by_prompt(whole if size == whole.page_size else trace.paged(size))), "prompt"


def turns_of(trace: Paged) -> NDArray[np.int32]:
    """The turn of each request, counted from 0; 0 also for a request without conversation."""
    jobs = trace.jobs
    turns = np.zeros(len(jobs), dtype=np.int32)
    for index in np.flatnonzero(jobs.afters >= 0).tolist():
        job = jobs[index]
        before = jobs[job.after]
        history = trace.chain(before)[: before.input_length // trace.page_size]
        whole = len(history)
        repeated = trace.chain(job)[:whole]
        longer = job.input_length > before.input_length
        if whole and longer and np.array_equal(history, repeated):
            turns[index] = turns[job.after] + 1
    return turns


def by_turn(account: Account, turns: NDArray[np.int32]) -> list[Turn]:
    """One entry for each turn of served requests; empty if no request continues another."""
    if not turns.any():
        return []
    served = account.all_served()
    found = turns[served]
    result = []
    for turn in np.unique(found).tolist():
        indices = served[found == turn]
        hit, total = account.hit_tokens(indices)
        result.append(Turn(turn + 1, len(indices), total, hit, hit / (total or 1)))
    return result
