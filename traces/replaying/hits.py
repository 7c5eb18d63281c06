"""The `hits` mode: serves one request at a time with the real core, without a clock.

Each request arrives, is admitted, computed and finished before the next one, and transfers end at
once, so hits depend on the order of the file alone. Every prompt token may hit, the last one too.
The output is committed if the trace identifies it, and left out otherwise, because nothing can hit
it. An output grows page by page where there are windows, so pages behind a window are freed as in
an engine. Does not simulate time or concurrency. Does not interpret the counts; see account.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hicache.core.actions import Admitted, Load, Outcome, Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    Finished,
    PagesWanted,
    PrefillDone,
)
from hicache.runtime.driver import Driver, Executor, Observer, first_of
from hicache.runtime.executors import ImmediateExecutor
from sim.engine.sequence import from_storage
from sim.errors import StuckError
from sim.rounds import RoundOptions, empty
from sim.wants import WantOptions, Wants
from sim.workload import Job

from ..formats.base import Paged
from .account import Account, Prefetches

_MOST_ROUNDS = 10_000


class HitsReplay:
    """Runs one trace on one core. `run` may be interrupted between requests."""

    def __init__(
        self,
        trace: Paged,
        config: Config,
        account: Account,
        observers: Sequence[Observer],
        executor: Executor | None = None,
        prefetches: Prefetches | None = None,
        rounds: RoundOptions | None = None,
        uncached: frozenset[int] = frozenset(),
        wants: WantOptions | None = None,
    ) -> None:
        """executor: whose actions have all ended at the next poll. prefetches: an observer of its
        storage, if it has one. uncached: requests that are larger than the device; they are
        computed without it."""
        self.core = Core(config)
        self._executor = executor or ImmediateExecutor()
        self._driver = Driver(self.core, self._executor, observers)
        self._prefetches = prefetches
        self._rounds = rounds
        self._uncached = uncached
        self._turn = 0
        self._trace = trace
        self._account = account
        self._wants = Wants(wants or WantOptions(), self._driver.feed)
        self._stepwise = len(config.components) > 1

    def run(self, progress: Callable[[int], None]) -> None:
        """Serves all requests in file order. progress: called with the number done so far."""
        self._wants.pin(self._trace)
        for job in self._trace.jobs:
            self._wants.until(job.arrival_ns)
            if self._rounds is not None and self._rounds.turns[job.index] > self._turn:
                self._turn = self._rounds.turns[job.index]
                empty(self._rounds.tiers, self.core.view, self._driver.feed)
                self._settle()
            self.serve(job)
            if not job.index & 63:
                progress(job.index)
        progress(len(self._trace.jobs))

    def serve(self, job: Job) -> None:
        """Serves one request from its arrival to its end."""
        if job.index in self._uncached:
            self._account.admit(job.index, 0, 0)
            return
        request, length, trace = job.index, job.input_length, self._trace
        feed = self._driver.feed
        key = trace.prompt_key(job)
        feed(Arrived(request, key, length, key.pages, job.priority))
        if self._prefetches is not None:
            self._settle()  # its prefetch ends before it is admitted
        prefill = self.admitted(job, self._granted(job, AdmitWanted(request, length)))
        feed(PrefillDone(prefill.flight))
        while not prefill.completes_prompt:
            # a component that takes its pages chunk by chunk may have limited the pass
            more = self._granted(job, ContinueWanted(request, length - prefill.end_token))
            prefill = prefill_of(job, more)
            feed(PrefillDone(prefill.flight))
        if trace.knows_output:
            length += job.output_length - 1  # the last generated token has no KV
            self._generate(job, length)
            key = trace.key(job, length)
        feed(Finished(request, key, length))
        if self.core.view.flights:
            self._settle()

    def _generate(self, job: Job, final: int) -> None:
        """Grows the request to `final` tokens: page by page with windows, else in one step."""
        length = job.input_length
        step = self._trace.page_size if self._stepwise else max(1, final - length)
        while length < final:
            wanted = min((length // step + 1) * step if self._stepwise else final, final)
            self._granted(job, PagesWanted(job.index, wanted, length))
            length = wanted

    def admitted(self, job: Job, outcomes: list[Outcome]) -> Prefill:
        """Records the hit in the account, and waits for a load. Returns the prefill."""
        prefill = prefill_of(job, outcomes)
        admitted = first_of(Admitted, outcomes)
        if admitted is None:
            raise StuckError(f"request {job.index}: expected to be admitted, found {outcomes[-2:]}")
        if any(isinstance(item, Load) for item in outcomes):
            self._executor.start()
            self._driver.poll()
        size, length = self._trace.page_size, job.input_length
        device = min(admitted.device_pages * size, length)
        host = min((admitted.device_pages + admitted.host_pages) * size, length) - device
        storage = 0
        if self._prefetches is not None:
            pages = from_storage(admitted, *self._prefetches.fetched(job.index))
            before = (admitted.device_pages + admitted.host_pages - pages) * size
            storage = device + host - min(before, length)
        self._account.admit(job.index, device, host - storage, storage)
        return prefill

    def _granted(self, job: Job, event: Event) -> list[Outcome]:
        """Feeds the event until it is not refused. Only transfers can delay it."""
        for _ in range(_MOST_ROUNDS):
            outcomes = self._driver.feed(event)
            refused = first_of(Refused, outcomes)
            if refused is None:
                return outcomes
            alone = not self.core.view.flights
            if refused.reason == "too_large" or (alone and refused.reason == "no_pages"):
                raise too_small(job, refused)
            if alone:
                break
            self._executor.start()
            self._driver.poll()
        raise StuckError(f"request {job.index}: refused alone in the cache, {refused}")

    def _settle(self) -> None:
        """Answers transfers until none is left. A reply may start another transfer."""
        for _ in range(_MOST_ROUNDS):
            self._executor.start()
            self._driver.poll()
            if not self.core.view.flights:
                return
        raise StuckError(f"transfers begin transfers: {len(self.core.view.flights)} left")


def prefill_of(job: Job, outcomes: list[Outcome]) -> Prefill:
    prefill = outcomes[-1]
    if not isinstance(prefill, Prefill):
        raise StuckError(f"request {job.index}: expected a prefill, found {prefill}")
    return prefill


def too_small(job: Job, refused: Refused) -> CallerError:
    """The error for a pool that is too small for one request alone."""
    return CallerError(
        f"{refused.component} pool of the device: expected room for {refused.needed} pages of "
        f"request {job.index} ({job.input_length} prompt tokens), found {refused.available}; "
        "enlarge that pool or leave the request out"
    )
