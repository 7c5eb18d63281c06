"""Counting hits: one request at a time through the real core, no clock, transfers at once.

Each request arrives, is seated whole, computed, finished and forgotten before the next one, so what
hits depends on the order of the file alone. Every prompt token may hit, the last one included. A
known output is committed, too; one without identity is left out, because nothing can hit it.
Must not live here: time, concurrency, or what the counts mean (traces/account).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hicache.core.actions import Load, Outcome, Prefill, Refused, Seated
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import Admitted, Arrived, Event, Finished, PagesWanted, PrefillDone
from hicache.runtime.driver import Driver, Observer
from hicache.runtime.immediate import ImmediateExecutor
from sim.errors import StuckError
from sim.workload import Job

from .account import Account
from .formats.base import Paged

_MOST_ROUNDS = 10_000


class HitsReplay:
    """One core and the trace that goes through it. `run` may be interrupted between requests."""

    def __init__(
        self,
        trace: Paged,
        config: Config,
        account: Account,
        observers: Sequence[Observer],
    ) -> None:
        self.core = Core(config)
        self._executor = ImmediateExecutor()
        self._driver = Driver(self.core, self._executor, observers)
        self._trace = trace
        self._account = account

    def run(self, progress: Callable[[int], None]) -> None:
        """All requests in order of the file. progress: called with the number done so far."""
        for job in self._trace.jobs:
            self._serve(job)
            if not job.index & 63:
                progress(job.index)
        progress(len(self._trace.jobs))

    def _serve(self, job: Job) -> None:
        request, length, trace = job.index, job.input_length, self._trace
        feed = self._driver.feed
        key = trace.prompt_key(job)
        feed(Arrived(request, key, length, key.pages))
        outcomes = self._granted(job, Admitted(request, length))
        prefill = self._seat(job, outcomes)
        feed(PrefillDone(prefill.flight))
        if trace.knows_output:
            length += job.output_length - 1  # the last generated token has no KV
            self._granted(job, PagesWanted(request, length))
            key = trace.key(job, length)
        feed(Finished(request, key, length))
        if self.core.view.flights:
            self._settle()

    def _seat(self, job: Job, outcomes: list[Outcome]) -> Prefill:
        """Book what was reused, finish the load if there is one; the prefill that is left."""
        prefill = outcomes[-1]
        if not isinstance(prefill, Prefill):
            raise StuckError(f"request {job.index}: expected a prefill, found {prefill}")
        seated = outcomes[-2]
        if isinstance(seated, Load):
            seated = outcomes[-3]
            self._executor.start()
            self._driver.poll()
        if not isinstance(seated, Seated):
            raise StuckError(f"request {job.index}: expected to be seated, found {seated}")
        size, length = self._trace.page_size, job.input_length
        device = min(seated.device_pages * size, length)
        host = min((seated.device_pages + seated.host_pages) * size, length) - device
        self._account.seat(job.index, device, host)
        return prefill

    def _granted(self, job: Job, event: Event) -> list[Outcome]:
        """Feed the event until it is not refused. Alone in the cache, only drains may delay it."""
        for _ in range(_MOST_ROUNDS):
            outcomes = self._driver.feed(event)
            refused = outcomes[-1]
            if not isinstance(refused, Refused):
                return outcomes
            if not self.core.view.flights:
                break
            self._executor.start()
            self._driver.poll()
        raise StuckError(f"request {job.index}: refused alone in the cache, {refused}")

    def _settle(self) -> None:
        """Answer transfers until none is left: a reply may begin another."""
        for _ in range(_MOST_ROUNDS):
            self._executor.start()
            self._driver.poll()
            if not self.core.view.flights:
                return
        raise StuckError(f"transfers begin transfers: {len(self.core.view.flights)} left")
