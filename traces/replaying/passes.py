"""Hits as an engine counts them: passes without a clock, over the real core.

A prompt's last token is computed, and what a request generates has pages of its own, as in an
engine that samples. So many requests are under way, and the next one of the trace comes when one
has ended. A pass is composed as vLLM composes it: running requests first, in the order in which
they were admitted, then the queue, one budget of tokens for all. What a pass computes can be hit by
the next request of the same pass: vLLM files a block when it is scheduled. A pass ends at once.

`Passes` composes them and leaves to others what is kept: `PassReplay` has the real core, and
`OnePoolReplay` (see one_pool) one pool of blocks for several groups of layers.

Does not simulate time (see sim/engine), and knows no passes that only compute prompts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from hicache.core.actions import Prefill
from hicache.core.errors import CallerError
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
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

from ..formats.base import Paged
from .hits import HitsReplay, prefill_of, too_small


def check_passes(profile: EngineProfile, at_once: int, stages: int) -> None:
    """Raises CallerError for an engine whose passes with several requests are not those here."""
    if at_once > 1 and stages > 1:
        raise CallerError(
            f"--concurrency: expected 1 in hits mode with --pp {stages}, whose passes need a clock,"
            f" found {at_once}; use --mode timed, or leave out --pp"
        )
    if at_once > 1 and (profile.batching != "mixed" or profile.reserve != "none"):
        raise CallerError(
            f"--concurrency: expected 1 in hits mode with {profile.label}, whose passes need a "
            f"clock, found {at_once}; use --mode timed, or --engine vllm"
        )


class Request:
    """A request under way. length: tokens to compute before it samples; with generated ones after
    a preemption. held: tokens that are computed. generated: tokens that passes have sampled."""

    __slots__ = ("generated", "held", "job", "key", "length", "outputs")

    def __init__(self, job: Job, key: Key) -> None:
        self.job = job
        self.key = key
        self.length = job.input_length
        self.held = self.generated = 0
        self.outputs = max(1, job.output_length)


class Passes(ABC):
    """Composes the passes of one trace. preempted: how often a request was."""

    def __init__(self, engine: EngineOptions, at_once: int, trace: Paged) -> None:
        """engine: its limits, and whether a pass is composed while the one before it runs. at_once:
        requests under way."""
        self.preempted = 0
        self._engine = engine
        self._at_once = at_once
        self._jobs = trace
        self._running: list[Request] = []
        self._waiting: deque[Request] = deque()
        self._under_way = self._done = 0
        self._left = (job for job in trace.jobs if job.after < 0)
        self._ahead = next(self._left, None)
        self._ready: list[tuple[int, Job]] = []  # those that follow one that has ended
        self._followers: dict[int, list[Job]] = {}

    @abstractmethod
    def _arrive(self, one: Request) -> bool:
        """It comes. Returns whether it is served with a cache."""

    @abstractmethod
    def _admit(self, one: Request, most: int) -> int:
        """Note what a waiting request hits, and compute its first chunk of at most so many tokens.
        Returns how many; 0 if it has to wait. Raises CallerError if it would have to for ever."""

    @abstractmethod
    def _compute(self, one: Request, most: int) -> int:
        """Compute the next chunk of a prompt, or sample a token. Returns the tokens; 0 if there is
        no room."""

    @abstractmethod
    def _retract(self, one: Request) -> None:
        """Give back what a request holds, which shall be admitted again."""

    @abstractmethod
    def _finish(self, one: Request) -> None:
        """Give back what a request holds, which has ended."""

    def run(self, progress: Callable[[int], None]) -> None:
        """Serves all requests. progress: called with the number done so far."""
        for job in self._jobs.jobs:
            if job.after >= 0:
                self._followers.setdefault(job.after, []).append(job)
        flying: list[Request] = []
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
        progress(len(self._jobs.jobs))

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
            one = Request(job, self._jobs.key(job, final_length(job)))
            if not self._arrive(one):
                self._leave(job)
                continue
            self._waiting.append(one)
            self._under_way += 1

    def _compose(self) -> tuple[list[Request], bool]:
        """Compose and compute the next pass. Returns the requests that end with it, and whether it
        computes anything."""
        left, preempted, place = self._engine.token_budget, self.preempted, 0
        ending: list[Request] = []
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
            took = self._admit(one, left)
            if not took:
                break
            self._running.append(self._waiting.popleft())
            left -= took
            if one.generated == one.outputs:
                ending.append(one)
        return ending, left < self._engine.token_budget

    def _advance(self, one: Request, most: int) -> int:
        """Compute more of a running request. While there is no room, the request that was admitted
        last gives its pages back. Returns the tokens; 0 if that was itself."""
        while not (took := self._compute(one, most)):
            last = self._running.pop()
            self._preempt(last)
            if last is one:
                return 0
        return took

    def _preempt(self, one: Request) -> None:
        """Its pages go back, and it waits at the front of the queue. What it has generated is a
        part of what it computes."""
        self.preempted += 1
        if one.generated == one.outputs:
            return  # its last token is sampled: it ends with the pass that is under way
        one.length = one.job.input_length + one.generated
        self._retract(one)
        one.held = 0
        self._waiting.appendleft(one)

    def _end(self, one: Request) -> None:
        """Its last token is sampled."""
        if one in self._running:
            self._running.remove(one)
        self._finish(one)
        self._under_way -= 1
        self._leave(one.job)

    def _leave(self, job: Job) -> None:
        self._done += 1
        for follower in self._followers.pop(job.index, ()):
            heappush(self._ready, (follower.index, follower))


class PassReplay(Passes, HitsReplay):
    """Runs one trace on one core in passes."""

    def __init__(self, engine: EngineOptions, at_once: int, trace: Paged, *held: Any) -> None:
        """engine, at_once: see `Passes`. trace, held: see `HitsReplay`."""
        HitsReplay.__init__(self, trace, *held)
        Passes.__init__(self, engine, at_once, trace)

    def run(self, progress: Callable[[int], None]) -> None:
        """Serves all requests. progress: called with the number done so far."""
        self._wants.pin(self._trace)
        super().run(progress)

    def _arrive(self, one: Request) -> bool:
        job = one.job
        self._wants.until(job.arrival_ns)
        if job.index in self._uncached:
            self._account.admit(job.index, 0, 0)
            return False
        key, reusable = self._prompt(one)
        self._driver.feed(Arrived(job.index, key, one.length, reusable, job.priority))
        if self._prefetches is not None:
            self._settle()  # its prefetch ends before it is admitted
        return True

    def _prompt(self, one: Request) -> tuple[Key, int]:
        """The whole pages of what it computes before it samples, and how many of them it may hit:
        an engine computes the last token."""
        size = self._trace.page_size
        return one.key.first(one.length // size), (one.length - 1) // size

    def _admit(self, one: Request, most: int) -> int:
        outcomes, refused = self._asked(one.job, AdmitWanted(one.job.index, most))
        if refused is not None:
            if not self._running:
                raise too_small(one.job, refused)
            return 0
        prefill = self.admitted(one.job, outcomes)
        one.held = prefill.start_token
        return self._computed(one, prefill)

    def _compute(self, one: Request, most: int) -> int:
        number = one.job.index
        if one.held < one.length:
            outcomes, refused = self._asked(one.job, ContinueWanted(number, most))
            return 0 if refused else self._computed(one, prefill_of(one.job, outcomes))
        if one.held % self._trace.page_size == 0:
            _, refused = self._asked(one.job, PagesWanted(number, one.held + 1, one.held))
            if refused is not None:
                return 0
        one.held += 1
        one.generated += 1
        return 1

    def _computed(self, one: Request, prefill: Prefill) -> int:
        """A chunk is computed: from now on it can be hit."""
        self._driver.feed(PrefillDone(prefill.flight))
        one.held = prefill.end_token
        if prefill.completes_prompt:
            one.generated += 1
        return max(1, prefill.end_token - prefill.start_token)

    def _retract(self, one: Request) -> None:
        key, reusable = self._prompt(one)
        self._driver.feed(Retracted(one.job.index, key, one.length, reusable, one.held))

    def _finish(self, one: Request) -> None:
        self._driver.feed(Finished(one.job.index, one.key, final_length(one.job)))
        if self.core.view.flights:
            self._settle()

    def _leave(self, job: Job) -> None:
        super()._leave(job)
