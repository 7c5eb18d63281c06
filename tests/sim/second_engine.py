"""The serving engine, written a second time: one decode step per pass, no heaps, plain lists.

It has the rules of docs/replay.md and the order of sim/engine/engine, and shares with it the core,
the controller, the clock and the simulated device. A run of it must have the same events at the
same times, and the same results, as one of sim/engine. Only for small workloads. Does not follow
the content of pages, and does not use any module of sim/engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hicache.core.actions import Admitted, Cached, Granted, Matched, Outcome, Prefill, Refused
from hicache.core.actions import Restarted as WasRestarted
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    Finished,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import Key, Tier
from hicache.runtime.controller import COMPUTE, TransferController
from hicache.runtime.driver import Driver
from sim.clock import Clock
from sim.options import EngineOptions
from sim.times.base import TimeModel
from sim.workload import Job, Workload

from .second_rules import Door, Hold, Line, Room, pass_ns

Blocked = tuple[int, int]  # the progress at a refusal, and the flight it waits for


@dataclass(eq=False)
class Request:
    """The names are those of sim/engine/sequence; device, host, depths in pages."""

    job: Job
    arrival_ns: int
    length: int
    key: Key | None = None
    pages: int = 0
    held: int = 0
    generated: int = 0
    counted: bool = False
    device: int = 0
    host: int = 0
    computed: int = 0
    depths: tuple[int, ...] = ()
    loaded: tuple[int, ...] = ()
    admit_ns: int = -1
    first_token_ns: int = -1
    finish_ns: int = -1
    retractions: int = 0
    refusals: int = 0
    load_ns: int = 0
    compute_ns: int = 0
    tokens_ns: list[int] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        return max(1, self.job.output_length)

    @property
    def final(self) -> int:
        return self.job.input_length + self.outputs - 1


@dataclass
class Parts:
    """What an engine runs on."""

    clock: Clock
    driver: Driver
    controller: TransferController
    device: Any
    costs: TimeModel


class PlainEngine:
    """See the module. ended: called with each request that ended."""

    def __init__(
        self,
        workload: Workload,
        parts: Parts,
        options: EngineOptions,
        ended: Callable[[Request], None],
    ) -> None:
        self.live: dict[int, Request] = {}
        self.waiting = Line(options.order, options.window)
        self.prefilling: list[Request] = []
        self.decoding: list[Request] = []
        self.stalled: list[tuple[Request, Blocked]] = []
        self.batch: list[tuple[Request, Prefill]] = []
        self._workload = workload
        self._parts = parts
        self._options = options
        self._ended = ended
        self._size = workload.page_size
        self._stretch = self._tokens_to_grow()
        self._progress = 0
        self._admitted: list[Request] = []
        self._budget = 0
        self._profile = options.profile
        self._apart = options.profile.batching == "separate"
        self._decodes = False  # the running pass
        self._hold = Hold(options)
        self._only_decoded = False  # the last pass
        self._lost = False  # a request was preempted at this boundary
        self._pool = parts.driver.core.view.pool(Tier.DEVICE)
        self._room = Room(options.profile, self._size)
        self._door = Door(options, parts.clock, self.waiting.push)
        self._refused: Blocked | None = None
        self._starved: Blocked | None = None
        self._busy = self._woken = False

    def _tokens_to_grow(self) -> int:
        """At most two pages, or an eighth of a window, where pages behind a window are freed."""
        stretch = self._options.growth_tokens
        for one in self._parts.driver.core.view.components:
            if one.positional and one.window_tokens < 1 << 40:
                pages = -(-one.window_tokens // self._size)
                stretch = min(stretch, max(2 * self._size, pages // 8 * self._size))
        return max(stretch, self._size)

    # -- the boundary between two passes

    def arrive(self, job: Job) -> None:
        request = Request(job, self._parts.clock.now_ns, job.input_length)
        self.live[job.index] = request
        self._door.come(request, lambda: self._received(request))

    def _received(self, request: Request) -> None:
        self._door.enter(request, self._busy)
        self.wake()

    def wake(self) -> None:
        if not self._busy and not self._woken:
            self._woken = True
            self._parts.clock.after(0, self._look)

    def _look(self) -> None:
        self._woken = False
        if not self._busy:
            self._boundary()

    def _boundary(self) -> None:
        self._note(self._parts.driver.poll())
        self._door.composed(self._only_decoded)
        for request in sorted(self.decoding, key=lambda one: one.job.index):
            if request.generated == request.outputs:
                self._finish(request)
        self._lost = False
        self._ask_again()
        while full := [one for one in self.decoding if one.held == one.pages * self._size]:
            self._grow(min(full, key=lambda one: one.job.index))
        self._fill()
        if self._door.waiting and not self.batch and not self.decoding:
            self._door.nothing_runs()
            self._fill()
        self._parts.controller.start()
        self._launch()

    def _fill(self) -> None:
        self.batch = []
        if self._holds():
            return
        taken = 0 if self._apart else len(self.decoding)
        self._budget = self._options.token_budget - taken
        self._continue()
        if not (self._apart and self._lost and self.decoding):
            self._admit()

    def _holds(self) -> bool:
        """Whether prompts wait for others while something decodes."""
        line = [one for one in self.waiting.waiting if isinstance(one, Request)]
        full = len(self._admitted) >= self._options.max_running
        stuck = full or self._waits(self._refused) or self._waits(self._starved)
        asked = [] if stuck and not self.prefilling else [*self.prefilling, *line]
        return self._hold.keeps(sum(one.length - one.held for one in asked), len(self.decoding))

    def _launch(self) -> None:
        """One pass: the chunks of the batch, and one token of each decoding request."""
        parts, batch = self._parts, self.batch
        self._busy = bool(batch or self.decoding)
        self._only_decoded = self._busy and not batch
        if not self._busy:
            return
        chunks = [(prefill.start_token, prefill.end_token) for _, prefill in batch]
        self._decodes = not (batch and self._apart)
        decoders = self.decoding if self._decodes else []
        context = sum(request.held + 1 for request in decoders)
        decoding = len(decoders)
        layer_ns = parts.costs.layer_ns(chunks, decoding, context)
        overhead_ns = parts.costs.overhead_ns(chunks, decoding)
        device_ns = parts.costs.layers * layer_ns + overhead_ns
        total_ns = pass_ns(self._profile, device_ns, decoding, len(chunks))
        flights = {flight for _, prefill in batch for flight in prefill.after}
        marks = {parts.controller.load_marks(flight) for flight in sorted(flights)} - {()}
        stream, layers, groups = parts.device.stream(COMPUTE), parts.costs.layers, 0
        if marks:
            groups = parts.device.layers
            for group in range(groups):
                for one in sorted(marks):
                    parts.device.wait(stream, one[group])
                first, last = layers * group // groups, layers * (group + 1) // groups
                parts.device.compute(stream, (last - first) * layer_ns)
            parts.device.compute(stream, total_ns - layers * layer_ns)
        else:
            parts.device.compute(stream, total_ns)
        began_ns = parts.clock.now_ns
        mark = parts.device.record(stream)
        parts.device.sync(mark, lambda: self._passed(parts.clock.now_ns - began_ns, total_ns))

    def _passed(self, elapsed_ns: int, compute_ns: int) -> None:
        self._busy = False
        if self._decodes and self.decoding:
            self._room.step()
        for request in self.decoding if self._decodes else []:
            request.held += 1
            request.generated += 1
            request.tokens_ns.append(self._parts.clock.now_ns)
        for request, prefill in self.batch:
            if request.first_token_ns < 0:
                request.compute_ns += compute_ns
                request.load_ns += elapsed_ns - compute_ns
            self._prefilled(request, prefill)
        self._boundary()

    def _prefilled(self, request: Request, prefill: Prefill) -> None:
        failed = any(self._parts.controller.load_failed(flight) for flight in prefill.after)
        self._feed(PrefillDone(prefill.flight, not failed))
        self._progress += 1
        if failed:
            return
        request.held = prefill.end_token
        if not prefill.completes_prompt:
            return
        self.prefilling.remove(request)
        request.generated += 1
        request.tokens_ns.append(self._parts.clock.now_ns)
        if request.first_token_ns < 0:
            request.first_token_ns = self._parts.clock.now_ns
        if request.generated == request.outputs:
            self._finish(request)
        else:
            self.decoding.append(request)

    # -- requests end, and give their pages back

    def _finish(self, request: Request) -> None:
        assert request.key is not None
        self._feed(Finished(request.job.index, request.key, request.final))
        self._drop(request)
        self._admitted.remove(request)
        self._progress += 1
        request.finish_ns = self._parts.clock.now_ns
        del self.live[request.job.index]
        self._ended(request)

    def _retract(self, request: Request) -> None:
        assert request.key is not None
        self._drop(request)
        length = request.job.input_length + request.generated
        key, reusable = request.key.first(length // self._size), (length - 1) // self._size
        self._feed(Retracted(request.job.index, key, length, reusable, request.held))
        request.retractions += 1
        self._back_in_line(request)
        self._lost = True
        self._room.lost_one(self._admitted)

    def _back_in_line(self, request: Request) -> None:
        self._drop(request)
        request.length = request.job.input_length + request.generated
        request.held = 0
        self._admitted.remove(request)
        self._progress += 1
        self.waiting.push_front(request)

    def _drop(self, request: Request) -> None:
        self.prefilling = [one for one in self.prefilling if one is not request]
        self.decoding = [one for one in self.decoding if one is not request]
        self.stalled = [one for one in self.stalled if one[0] is not request]

    # -- events and answers

    def _feed(self, event: Event) -> list[Outcome]:
        outcomes = self._parts.driver.feed(event)
        self._note(outcomes)
        return outcomes

    def _note(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Cached | Granted):
                self.live[outcome.request].pages = len(outcome.tables[0])
            elif isinstance(outcome, WasRestarted):
                request = self.live[outcome.request]
                request.counted = request.counted and request.first_token_ns >= 0
                self._back_in_line(request)

    def _refusal(self, request: Request, outcomes: list[Outcome]) -> Refused | None:
        refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        request.refusals += bool(refused)
        return refused[0] if refused else None

    def _blocked(self, refusal: Refused) -> Blocked:
        return self._progress, refusal.after

    def _waits(self, blocked: Blocked | None) -> bool:
        """Whether nothing has changed since the refusal."""
        if blocked is None or blocked[0] != self._progress:
            return False
        return not blocked[1] or self._parts.controller.is_unanswered(blocked[1])

    # -- growth

    def _ask_again(self) -> None:
        if all(self._waits(blocked) for _, blocked in self.stalled):
            return
        self.stalled = [(request, (-1, 0)) for request, _ in self.stalled]
        for request in [one for one, _ in self.stalled]:
            if any(one is request for one, _ in self.stalled):
                self.stalled = [one for one in self.stalled if one[0] is not request]
                self._grow(request)

    def _grow(self, request: Request) -> None:
        index, held = request.job.index, request.held
        self._drop(request)
        wanted = min(held + self._stretch, request.final)
        while True:
            refusal = self._refusal(request, self._feed(PagesWanted(index, wanted, held)))
            if refusal is None:
                self.decoding.append(request)
                return
            if -(-wanted // self._size) > held // self._size + 1:
                wanted = held + 1
            elif refusal.preempt >= 0:
                self._retract(self.live[refusal.preempt])
                if refusal.preempt == index:
                    return
            else:
                self.stalled.append((request, self._blocked(refusal)))
                return

    # -- chunks

    def _chunk(self, left: int) -> int:
        most = min(self._budget, self._options.most_chunk or self._budget)
        whole = left <= most or not self._profile.chunked
        return left if whole else most // self._size * self._size

    def _first(self, request: Request) -> int:
        """The chunk of an admission: a prompt that is not divided must fit beside others."""
        if not self._profile.chunked and self.batch and request.length > self._budget:
            found = self._reusable(request) * self._size
            return request.length if request.length - found <= self._budget else 0
        return self._chunk(request.length)

    def _continue(self) -> None:
        if self._waits(self._starved):
            return
        for request in list(self.prefilling):
            chunk = self._chunk(request.length - request.held)
            if chunk < 1:
                return
            if request in self.prefilling and not self._extend(request, chunk):
                return

    def _extend(self, request: Request, chunk: int) -> bool:
        while True:
            outcomes = self._feed(ContinueWanted(request.job.index, chunk))
            refusal = self._refusal(request, outcomes)
            if refusal is None:
                self._join(request, outcomes)
                return True
            if refusal.preempt not in self.live:
                self._starved = self._blocked(refusal)
                return False
            self._retract(self.live[refusal.preempt])
            if refusal.preempt == request.job.index:
                return True
            self._refused = self._progress, 0

    def _admit(self) -> None:
        while self.waiting.waiting and len(self._admitted) < self._options.max_running:
            if self._waits(self._refused) or self._waits(self._starved):
                return
            request = self.waiting.best(self._reusable)
            assert isinstance(request, Request)
            chunk = self._first(request)
            if chunk < 1:
                self._refused = self._progress, 0
                return
            pages = self._pool.capacity, self._pool.available
            if not self._room.for_one(request, self._admitted, *pages):
                if not self._room.changes:
                    self._refused = self._progress, 0
                return
            self._announce(request)
            outcomes = self._feed(AdmitWanted(request.job.index, chunk))
            refusal = self._refusal(request, outcomes)
            if refusal is not None:
                self._refused = self._blocked(refusal)
                return
            self.waiting.remove(request)
            self._admitted.append(request)
            self.prefilling.append(request)
            self._join(request, outcomes)

    def _announce(self, request: Request) -> None:
        if request.key is None:
            job, length, size = request.job, request.length, self._size
            request.key = self._workload.key(job, request.final)
            key = request.key.first(length // size)
            self._feed(Arrived(job.index, key, length, (length - 1) // size, job.priority))

    def _reusable(self, request: Any) -> int:
        self._announce(request)
        told = self._feed(MatchWanted(request.job.index))
        (matched,) = (one for one in told if isinstance(one, Matched))
        return matched.device_pages + matched.host_pages

    def _join(self, request: Request, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Prefill):
                request.pages = len(outcome.tables[0])
                self.batch.append((request, outcome))
                self._budget -= outcome.end_token - outcome.start_token
            elif isinstance(outcome, Admitted) and not request.counted:
                request.counted = True
                request.device, request.host = outcome.device_pages, outcome.host_pages
                request.computed = outcome.tokens_to_compute
                request.depths, request.loaded = outcome.depths, outcome.loaded_pages
                request.admit_ns = self._parts.clock.now_ns
