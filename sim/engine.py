"""The simulated engine: continuous batching with chunked prefill, on virtual time.

Lives here: what happens at a step boundary, and in which order. Must not live here: how long a pass
takes (forward, costs), who is next (waiting), when a decoding sequence is due (decode), or any
decision about pages (the core).

At a boundary no pass is in flight, and in this order: replies of transfers are taken, also when
nothing is prefilled (or backups would hold their pages for ever); sequences that are due end or
grow, which may retract others; the prefills under way go on; waiting requests are seated; queued
transfers start; the next pass is launched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hicache.core.actions import (
    NO_REQUEST,
    Cached,
    Granted,
    Matched,
    Outcome,
    Prefill,
    Refused,
    Released,
    Restarted,
    Seated,
)
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import (
    Admitted,
    Arrived,
    Continued,
    Event,
    Finished,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import RequestId
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver

from .clock import Clock
from .content import prefix_tags
from .costs import CostModel
from .decode import DecodeSet
from .errors import StuckError
from .forward import Forward
from .sequence import UNSET_NS, Sequence
from .waiting import WaitingQueue
from .workload import Job, Workload


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """token_budget   tokens of one pass: decoding sequences first, prefill chunks fill the rest.
    max_running    sequences seated at once.
    order          who is admitted next: fcfs or longest-prefix.
    window         waiting requests that longest-prefix looks at.
    growth_tokens  pages for this many tokens are asked for at a time while decoding.
    layer_groups   parts that a load is cut into; a pass waits for each where it needs it.
    fast_forward   run decode steps between which nothing can happen as one.
    """

    token_budget: int = 8192
    max_running: int = 256
    order: str = "fcfs"
    window: int = 32
    growth_tokens: int = 64
    layer_groups: int = 4
    fast_forward: bool = True

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_running", "window", "growth_tokens", "layer_groups"):
            if getattr(self, name) < 1:
                raise CallerError(f"{name}: expected at least 1, found {getattr(self, name)}")


class Engine:
    """Serves one workload. `ended`: called with each sequence that ended."""

    def __init__(
        self,
        workload: Workload,
        clock: Clock,
        driver: Driver,
        controller: TransferController,
        forward: Forward,
        costs: CostModel,
        options: EngineOptions,
        ended: Callable[[Sequence], None],
        tagged: bool,
    ) -> None:
        self.sequences: dict[RequestId, Sequence] = {}
        self._workload = workload
        self._page_size = workload.page_size
        if self._page_size > options.token_budget:
            raise CallerError(
                f"token_budget: expected at least one page of {self._page_size} tokens, found "
                f"{options.token_budget}"
            )
        self._clock = clock
        self._driver = driver
        self._controller = controller
        self._forward = forward
        self._costs = costs
        self._options = options
        self._ended = ended
        self._tagged = tagged
        self._waiting = WaitingQueue(options.order, options.window)
        self._decode = DecodeSet()
        self._prefilling: dict[RequestId, Sequence] = {}
        self._stalled: dict[RequestId, Sequence] = {}
        self._batch: list[tuple[Sequence, Prefill]] = []
        self._budget = 0
        self._running = 0
        self._busy = False
        self._woken = False
        self._progress = 0
        self._blocked_at = -1

    def arrive(self, job: Job) -> None:
        """A request exists from now on."""
        outputs = max(1, job.output_length)
        sequence = Sequence(job, outputs, job.input_length, self._clock.now_ns)
        self.sequences[job.index] = sequence
        self._waiting.push(sequence)
        self.wake()

    def wake(self) -> None:
        """Something may have changed: if idle, look again once this instant's news are in."""
        if not self._busy and not self._woken:
            self._woken = True
            self._clock.after(0, self._look)

    def _look(self) -> None:
        self._woken = False
        if not self._busy:
            self._boundary()

    def _boundary(self) -> None:
        self._apply(self._driver.poll())
        self._serve_due()
        self._batch = []
        self._budget = self._options.token_budget - len(self._decode)
        self._continue()
        self._admit()
        self._controller.start()
        self._launch()

    def _feed(self, event: Event) -> list[Outcome]:
        outcomes = self._driver.feed(event)
        self._apply(outcomes)
        return outcomes

    def _apply(self, outcomes: list[Outcome]) -> None:
        """What any answer may contain, whatever it answers."""
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Cached or kind is Granted:
                assert isinstance(outcome, Cached | Granted)
                self.sequences[outcome.request].table = outcome.table
            elif kind is Restarted:
                assert isinstance(outcome, Restarted)
                self._restarted(self.sequences[outcome.request])
        self._progress += bool(outcomes)

    def _restarted(self, sequence: Sequence) -> None:
        self._prefilling.pop(sequence.job.index, None)
        if sequence.first_token_ns == UNSET_NS:
            sequence.counted = False
        self._unseat(sequence)

    def _unseat(self, sequence: Sequence) -> None:
        sequence.held = sequence.touched = 0
        self._running -= 1
        self._waiting.push_front(sequence)

    # Decoding

    def _serve_due(self) -> None:
        retry = list(self._stalled.values()) if self._progress != self._blocked_at else []
        for sequence in retry:
            if sequence.job.index in self._stalled:
                del self._stalled[sequence.job.index]
                self._grow(sequence)
        for sequence in self._decode.ready():
            self._forward.touch_decoded(sequence)
            if sequence.generated == sequence.outputs:
                self._finish(sequence)
            elif sequence.retractions >= 0:
                self._grow(sequence)

    def _finish(self, sequence: Sequence) -> None:
        job = sequence.job
        self._feed(Finished(job.index, sequence.key, sequence.final))
        self._running -= 1
        sequence.finish_ns = self._clock.now_ns
        del self.sequences[job.index]
        self._ended(sequence)
