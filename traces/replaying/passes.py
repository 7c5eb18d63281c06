"""Hits as an engine counts them: passes over the real core, without a clock.

A prompt's last token is computed, and what a request generates has pages of its own, as in an
engine that samples. So many requests are under way, and the next one of the trace comes when one
has ended. A pass is composed as vLLM composes it: running requests first, in the order in which
they were admitted, then the queue, one budget of tokens for all. What a pass computes can be hit by
the next request of the same pass: vLLM files a block when it is scheduled. A pass ends at once.

Does not simulate time (see sim/engine), and knows no passes that only compute prompts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from hicache.core.actions import Outcome, Prefill
from hicache.core.errors import CallerError
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    Finished,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import Key
from sim.engine.sequence import final_length
from sim.engine_profiles.base import EngineProfile
from sim.errors import StuckError
from sim.options import EngineOptions
from sim.workload import Job

from .hits import HitsReplay, prefill_of, too_small


def check_passes(profile: EngineProfile, at_once: int) -> None:
    """Raises CallerError for an engine whose passes with several requests are not those here."""
    if at_once > 1 and (profile.batching != "mixed" or profile.reserve != "none"):
        raise CallerError(
            f"--concurrency: expected 1 in hits mode with {profile.label}, whose passes need a "
            f"clock, found {at_once}; use --mode timed, or --engine vllm"
        )


class _Request:
    """A request under way. length: tokens to compute before it samples; with generated ones after
    a preemption. held: tokens that are computed. generated: tokens that passes have sampled."""

    __slots__ = ("generated", "held", "job", "key", "length", "outputs")

    def __init__(self, job: Job, key: Key) -> None:
        self.job = job
        self.key = key
        self.length = job.input_length
        self.held = self.generated = 0
        self.outputs = max(1, job.output_length)


class PassReplay(HitsReplay):
    """Runs one trace on one core in passes. preempted: how often a request was."""

    def __init__(self, engine: EngineOptions, at_once: int, *held: Any) -> None:
        """engine: its limits, and whether a pass is composed while the one before it runs. at_once:
        requests under way. held: see `HitsReplay`."""
        super().__init__(*held)
        self.preempted = 0
        self._engine = engine
        self._at_once = at_once
        self._running: list[_Request] = []
        self._waiting: deque[_Request] = deque()
        self._under_way = self._done = 0
        self._left = (job for job in self._trace.jobs if job.after < 0)
        self._ahead = next(self._left, None)
        self._ready: list[tuple[int, Job]] = []  # those that follow one that has ended
        self._followers: dict[int, list[Job]] = {}

    def run(self, progress: Callable[[int], None]) -> None:
        """Serves all requests. progress: called with the number done so far."""
        for job in self._trace.jobs:
            if job.after >= 0:
                self._followers.setdefault(job.after, []).append(job)
        self._wants.pin(self._trace)
        flying: list[_Request] = []
        while True:
            self._send()
            batch, computed = self._compose()
            if self._engine.profile.lookahead:
                flying, batch = batch, flying
            for one in batch:
                self._end(one)
            progress(self._done)
            if not (computed or batch or flying):
                break
        if self._under_way:
            raise StuckError(f"{self._under_way} requests are under way, and no pass is")
        progress(len(self._trace.jobs))

    def _send(self) -> None:
        """Requests arrive until as many are under way as shall be, the first of the trace first."""
        while self._under_way < self._at_once:
            ahead = self._ahead
            if self._ready and (ahead is None or self._ready[0][0] < ahead.index):
                job = heappop(self._ready)[1]
            elif ahead is not None:
                job, self._ahead = ahead, next(self._left, None)
            else:
                return
            self._wants.until(job.arrival_ns)
            if job.index in self._uncached:
                self._account.admit(job.index, 0, 0)
                self._leave(job)
                continue
            one = _Request(job, self._trace.key(job, final_length(job)))
            key, reusable = self._prompt(one)
            self._driver.feed(Arrived(job.index, key, one.length, reusable, job.priority))
            if self._store is not None:
                self._settle()  # its prefetch ends before it is admitted
            self._waiting.append(one)
            self._under_way += 1

    def _prompt(self, one: _Request) -> tuple[Key, int]:
        """The whole pages of what it computes before it samples, and how many of them it may hit:
        an engine computes the last token."""
        size = self._trace.page_size
        return one.key.first(one.length // size), (one.length - 1) // size

    def _compose(self) -> tuple[list[_Request], bool]:
        """Compose and compute the next pass. Returns the requests that end with it, and whether it
        computes anything."""
        left, preempted, place = self._engine.token_budget, self.preempted, 0
        ending: list[_Request] = []
        while place < len(self._running) and left > 0:
            one = self._running[place]
            if one.generated < one.outputs:
                took = self._advance(one, left)
                left -= took
                if took and one.generated == one.outputs:
                    ending.append(one)
            place += 1
        while (
            self.preempted == preempted
            and left > 0
            and self._waiting
            and len(self._running) < self._engine.max_running
        ):
            one = self._waiting[0]
            took = self._begin(one, left)
            if not took:
                break
            left -= took
            if one.generated == one.outputs:
                ending.append(one)
        return ending, left < self._engine.token_budget

    def _advance(self, one: _Request, most: int) -> int:
        """Compute the next chunk of a prompt, or sample a token. Returns the tokens computed; 0 if
        the request itself had to give its pages back."""
        number = one.job.index
        if one.held < one.length:
            outcomes = self._with_room(one, ContinueWanted(number, most))
            return self._computed(one, prefill_of(one.job, outcomes)) if outcomes else 0
        size = self._trace.page_size
        if one.held % size == 0 and not self._with_room(
            one, PagesWanted(number, one.held + 1, one.held)
        ):
            return 0
        one.held += 1
        one.generated += 1
        return 1

    def _with_room(self, one: _Request, event: Event) -> list[Outcome]:
        """Feed an event of a running request. While it is refused, the request that was admitted
        last gives its pages back. Returns nothing if that was itself."""
        while True:
            outcomes, refused = self._asked(one.job, event)
            if refused is None:
                return outcomes
            last = self._running.pop()
            self._preempt(last)
            if last is one:
                return []

    def _begin(self, one: _Request, most: int) -> int:
        """Admit a waiting request and compute its first chunk. Returns the tokens computed; 0 if
        it has to wait."""
        outcomes, refused = self._asked(one.job, AdmitWanted(one.job.index, most))
        if refused is not None:
            if not self._running:
                raise too_small(one.job, refused)
            return 0
        self._waiting.popleft()
        self._running.append(one)
        prefill = self.admitted(one.job, outcomes)
        one.held = prefill.start_token
        return self._computed(one, prefill)

    def _computed(self, one: _Request, prefill: Prefill) -> int:
        """A chunk is computed: from now on it can be hit."""
        self._driver.feed(PrefillDone(prefill.flight))
        one.held = prefill.end_token
        if prefill.completes_prompt:
            one.generated += 1
        return max(1, prefill.end_token - prefill.start_token)

    def _preempt(self, one: _Request) -> None:
        """Its pages go back, and it waits at the front of the queue. What it has generated is a
        part of what it computes."""
        self.preempted += 1
        if one.generated == one.outputs:
            return  # its last token is sampled: it ends with the pass that is under way
        one.length = one.job.input_length + one.generated
        key, reusable = self._prompt(one)
        self._driver.feed(Retracted(one.job.index, key, one.length, reusable, one.held))
        one.held = 0
        self._waiting.appendleft(one)

    def _end(self, one: _Request) -> None:
        """Its last token is sampled."""
        if one in self._running:
            self._running.remove(one)
        number, final = one.job.index, final_length(one.job)
        self._driver.feed(Finished(number, one.key, final))
        if self.core.view.flights:
            self._settle()
        self._under_way -= 1
        self._leave(one.job)

    def _leave(self, job: Job) -> None:
        self._done += 1
        for follower in self._followers.pop(job.index, ()):
            heappush(self._ready, (follower.index, follower))
        if self._ended is not None:
            self._ended()
