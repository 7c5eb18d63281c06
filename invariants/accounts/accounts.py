"""The accounts of a run, counted a second time: from its events, its notices and the arrival times.

An observer beside the simulator. It keeps one entry for each request and sums of pages. It imports
nothing of `sim` or `traces`, so a mistake in their accounts is not repeated here. Does not compute
rates and percentiles (see figures).

    arrival      of the trace, divided by the speed; for a request that follows another, the end of
                 that one and its delay; with rounds (`turns`), from when a tier was emptied for it
    first token  the end of the first pass that completes the prompt
    in passes    from the start to the end of each pass before that. A pass that reads no page of a
                 load has no time to wait for one
    reuse        of the admission whose load and passes led to the first token
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from hicache.core.actions import (
    Admitted,
    Backup,
    Evicted,
    Load,
    Lookup,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.events import (
    Arrived,
    BackupDone,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    PrefillDone,
    Retracted,
)
from hicache.core.types import FlightId, PageState, Tier
from hicache.core.view import CoreView

NEVER_NS = -1


class Job(Protocol):
    """What the accounts read of a request of the trace."""

    @property
    def index(self) -> int: ...
    @property
    def arrival_ns(self) -> int: ...
    @property
    def input_length(self) -> int: ...
    @property
    def output_length(self) -> int: ...
    @property
    def after(self) -> int: ...


@dataclass(slots=True)
class Entry:
    """One request. in_passes_ns: of passes before the first token; of these, in passes that read
    pages of a load: with_loads_ns. depths, loaded: pages, as the core told them. prefetched: the
    pages [first, last) that its own prefetch brought to host.
    """

    input_tokens: int
    output_tokens: int
    arrival_ns: int
    timed: bool
    device_pages: int = 0
    hit_pages: int = 0
    device_tokens: int = 0
    host_tokens: int = 0
    storage_tokens: int = 0
    prefetched: tuple[int, int] = (0, 0)
    computed_tokens: int = 0
    wanted_pages: int = 0
    depths: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    admit_ns: int = NEVER_NS
    first_token_ns: int = NEVER_NS
    finish_ns: int = NEVER_NS
    in_passes_ns: int = 0
    with_loads_ns: int = 0
    preemptions: int = 0
    refusals: int = 0
    counted: bool = False
    passed_tokens: int = 0

    @property
    def ended(self) -> bool:
        return self.finish_ns != NEVER_NS

    @property
    def ttft_ns(self) -> int:
        return self.first_token_ns - self.arrival_ns

    @property
    def queue_ns(self) -> int:
        return self.ttft_ns - self.in_passes_ns

    @property
    def hit_tokens(self) -> int:
        return self.device_tokens + self.host_tokens + self.storage_tokens


@dataclass(slots=True)
class _Pass:
    """Prefills that were launched together. open: flights without a reply. with_loads: whether one
    of them reads pages of a load, for which all of them wait.
    """

    began_ns: int
    open: set[FlightId] = field(default_factory=set)
    with_loads: bool = False


class Accounts:
    """See the module. now_ns: the time; without it, all times are 0.

    entries: by request. loaded, backed_up: pages by component; evicted: by tier and component;
    refused: by reason and component. failed: replies of transfers that failed. peak_pages: most
    device pages in use, by component; evicted_along: pages that an event evicted although as many
    of their pool were free afterwards. lookups_begun; prefetches: by the reason of their end,
    requests and pages asked for, found and fetched. wrong: what does not add up.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        page_size: int,
        speed: Fraction = Fraction(1),
        now_ns: Callable[[], int] = lambda: 0,
        turns: Sequence[int] = (),
    ) -> None:
        self.now_ns = now_ns
        self._turns = turns
        self._turn = 0
        self._held: list[int] = []
        self.loaded: Counter[str] = Counter()
        self.backed_up: Counter[str] = Counter()
        self.evicted: Counter[tuple[Tier, str]] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.failed = 0
        self.lookups_begun = 0
        self.prefetches: dict[str, list[int]] = {}
        self.peak_pages: Counter[str] = Counter()
        self.evicted_along: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._page_size = page_size
        self._speed = speed
        self._flights: dict[FlightId, tuple[Prefill, _Pass]] = {}
        self.entries: dict[int, Entry] = {}
        self._followers: dict[int, list[int]] = {}
        self._delays: dict[int, int] = {}
        latest_ns = 0
        for job in jobs:
            delay_ns = self._scaled(job.arrival_ns)
            if job.after < 0:  # no request arrives before the one in front of it in the trace
                latest_ns = max(latest_ns, delay_ns)
            else:
                self._followers.setdefault(job.after, []).append(job.index)
                self._delays[job.index] = delay_ns
            arrival_ns = latest_ns if job.after < 0 else NEVER_NS
            outputs = max(1, job.output_length)
            self.entries[job.index] = Entry(job.input_length, outputs, arrival_ns, job.after < 0)

    def _scaled(self, time_ns: int) -> int:
        return int(Fraction(time_ns) / self._speed)

    def sent(self, job: Job) -> None:
        """The client of a benchmark sends a request now: no earlier than it is ready."""
        entry, now_ns = self.entries[job.index], self.now_ns()
        if not 0 <= entry.arrival_ns <= now_ns:
            self.wrong.append(f"request {job.index} was sent before it was ready")
        entry.arrival_ns = now_ns

    @property
    def served(self) -> dict[int, Entry]:
        """The requests that ended, in the order of the trace."""
        return {index: one for index, one in self.entries.items() if one.finish_ns != NEVER_NS}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Counts nothing: an event counts together with its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        kind = type(event)
        if kind is PrefillDone:
            assert isinstance(event, PrefillDone)
            self._passed(event)
        elif kind is Finished:
            assert isinstance(event, Finished)
            self._finished(event.request)
        elif kind is Retracted:
            assert isinstance(event, Retracted)
            self.entries[event.request].preemptions += 1
        elif kind is Arrived:
            assert isinstance(event, Arrived)
            wanted = min(event.match_pages, event.key.pages)
            self.entries[event.request].wanted_pages = wanted
        elif kind is EvictWanted or kind is Flushed:
            self._emptied()
        elif isinstance(event, LoadDone | BackupDone):
            self.failed += not event.ok
        for outcome in outcomes:
            count = _COUNTED.get(type(outcome))
            if count is not None:
                count(self, outcome)
        if len(view.components) > 1 and outcomes:
            self._used(outcomes, view)

    def _used(self, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for pool in view.pools(Tier.DEVICE):
            name = pool.component
            free = int(pool.counts[PageState.FREE])
            self.peak_pages[name] = max(self.peak_pages[name], pool.capacity - free)
            evicted = sum(
                len(one.pages)
                for one in outcomes
                if isinstance(one, Evicted) and (one.tier, one.component) == (Tier.DEVICE, name)
            )
            self.evicted_along[name] += min(evicted, free)

    def _passed(self, event: PrefillDone) -> None:
        prefill, together = self._flights.pop(event.flight)
        together.open.discard(event.flight)
        entry, now_ns = self.entries[prefill.request], self.now_ns()
        if entry.first_token_ns != NEVER_NS:
            return
        elapsed_ns = now_ns - together.began_ns
        entry.in_passes_ns += elapsed_ns
        entry.with_loads_ns += elapsed_ns if together.with_loads else 0
        if not event.ok:
            return
        entry.passed_tokens += prefill.end_token - prefill.start_token
        if prefill.completes_prompt:
            entry.first_token_ns = now_ns
            if entry.passed_tokens != entry.computed_tokens and not entry.preemptions:
                self.wrong.append(
                    f"request {prefill.request}: expected {entry.computed_tokens} tokens to be "
                    f"computed, found {entry.passed_tokens}"
                )

    def _finished(self, index: int) -> None:
        now_ns = self.now_ns()
        self.entries[index].finish_ns = now_ns
        for follower in self._followers.pop(index, ()):
            if self._turns and self._turns[follower] > self._turn:
                self._held.append(follower)
            else:
                self.entries[follower].arrival_ns = now_ns + self._delays.pop(follower)

    def _emptied(self) -> None:
        """A tier was emptied: if a round waits for that, it begins now."""
        if not self._turns or not self._held or any(not one.ended for one in self._of_turn()):
            return
        self._turn = min(self._turns[follower] for follower in self._held)
        begins = [one for one in self._held if self._turns[one] == self._turn]
        self._held = [one for one in self._held if self._turns[one] != self._turn]
        for follower in begins:
            self.entries[follower].arrival_ns = self.now_ns() + self._delays.pop(follower)

    def _of_turn(self) -> list[Entry]:
        """The requests of the round."""
        return [one for index, one in self.entries.items() if self._turns[index] == self._turn]

    def _admitted(self, told: Admitted) -> None:
        entry, size = self.entries[told.request], self._page_size
        if entry.counted:
            return
        entry.counted = True
        entry.admit_ns = self.now_ns()
        entry.device_pages = told.device_pages
        entry.hit_pages = told.device_pages + told.host_pages
        entry.device_tokens = min(entry.device_pages * size, entry.input_tokens)
        hit_tokens = min(entry.hit_pages * size, entry.input_tokens)
        entry.storage_tokens = self._from_storage(entry)
        entry.host_tokens = hit_tokens - entry.device_tokens - entry.storage_tokens
        entry.computed_tokens = told.tokens_to_compute
        entry.passed_tokens = 0
        entry.depths, entry.loaded = told.depths, told.loaded_pages

    def _from_storage(self, entry: Entry) -> int:
        """Prompt tokens in host pages that the prefetch of the request had brought."""
        tokens = 0
        for page in range(entry.device_pages, entry.hit_pages):
            if entry.prefetched[0] <= page < entry.prefetched[1]:
                first = page * self._page_size
                tokens += min(first + self._page_size, entry.input_tokens) - first
        return tokens

    def _prefetched(self, told: Prefetched) -> None:
        last = told.first_page + told.fetched_pages
        self.entries[told.request].prefetched = told.first_page, last
        count = self.prefetches.setdefault(told.reason or "complete", [0, 0, 0, 0])
        for place, pages in enumerate((1, told.asked_pages, told.found_pages, told.fetched_pages)):
            count[place] += pages

    def _looked_up(self, action: Lookup) -> None:
        self.lookups_begun += 1

    def _restarted(self, told: Restarted) -> None:
        entry = self.entries[told.request]
        if entry.first_token_ns == NEVER_NS:
            entry.counted = False

    def _launched(self, prefill: Prefill) -> None:
        now_ns = self.now_ns()
        others = [together for _, together in self._flights.values() if together.open]
        together = others[-1] if others and others[-1].began_ns == now_ns else _Pass(now_ns)
        together.open.add(prefill.flight)
        together.with_loads |= bool(prefill.after)
        self._flights[prefill.flight] = prefill, together

    def _refused(self, told: Refused) -> None:
        self.refused[told.reason, told.component] += 1
        if told.request in self.entries:
            self.entries[told.request].refusals += 1

    def _evicted(self, told: Evicted) -> None:
        self.evicted[told.tier, told.component] += len(told.pages)

    def _loaded(self, action: Load) -> None:
        for copy in action.copies:
            self.loaded[copy.component] += len(copy.source)

    def _backed_up(self, action: Backup) -> None:
        for copy in action.copies:
            self.backed_up[copy.component] += len(copy.source)


_COUNTED: dict[type, Callable[[Accounts, object], None]] = {
    Admitted: Accounts._admitted,  # type: ignore[dict-item]
    Restarted: Accounts._restarted,  # type: ignore[dict-item]
    Prefill: Accounts._launched,  # type: ignore[dict-item]
    Refused: Accounts._refused,  # type: ignore[dict-item]
    Evicted: Accounts._evicted,  # type: ignore[dict-item]
    Load: Accounts._loaded,  # type: ignore[dict-item]
    Backup: Accounts._backed_up,  # type: ignore[dict-item]
    Prefetched: Accounts._prefetched,  # type: ignore[dict-item]
    Lookup: Accounts._looked_up,  # type: ignore[dict-item]
}


def arrivals_ns(
    jobs: Sequence[Job], ended_ns: Mapping[int, int], concurrency: int, speed: Fraction
) -> dict[int, int]:
    """The arrival of each request. ended_ns: of each request, by its number."""
    may_from = {job.index: 0 if job.after < 0 else None for job in jobs}
    delays = {job.index: int(Fraction(job.arrival_ns) / speed) for job in jobs if job.after >= 0}
    followers: dict[int, list[int]] = {}
    for job in jobs:
        followers.setdefault(job.after, []).append(job.index)
    found: dict[int, int] = {}
    instants = [0]
    free = concurrency
    while instants:
        now_ns = min(instants)
        instants = [one for one in instants if one != now_ns]
        for index in [one for one, came_ns in found.items() if ended_ns[one] == now_ns]:
            free += 1
            for follower in followers.get(index, ()):
                may_from[follower] = now_ns + delays[follower]
                if delays[follower]:
                    instants.append(now_ns + delays[follower])
        for index in sorted(may_from):
            begins_ns = may_from[index]
            if free and index not in found and begins_ns is not None and begins_ns <= now_ns:
                found[index] = now_ns
                instants.append(ended_ns[index])
                free -= 1
    return found


def arrive_in_turn(
    entries: Mapping[int, Entry], jobs: Sequence[Job], concurrency: int, speed: Fraction
) -> None:
    """Gives each entry its arrival. No request has an arrival time of its own then."""
    ended = {index: one.finish_ns for index, one in entries.items()}
    for index, time_ns in arrivals_ns(jobs, ended, concurrency, speed).items():
        entries[index].arrival_ns, entries[index].timed = time_ns, False
