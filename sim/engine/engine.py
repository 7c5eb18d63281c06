"""The engine: continuous batching with chunked prefill, on virtual time or on a device's.

Lives here: what happens at a step boundary, and in which order. Must not live here: how long a pass
takes (forward, costs), who is next (waiting), when a decoding sequence is due (decode), or any
decision about pages (the core).

At a boundary no pass is in flight, and in this order: replies of transfers are taken, also when
nothing is prefilled (or backups would hold their pages for ever); sequences that are due end or
grow, which may retract others; the prefills under way go on; waiting requests are admitted; queued
transfers start; the next pass is launched.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several

from hicache.core.actions import (
    NO_REQUEST,
    Admitted,
    Cached,
    Granted,
    Matched,
    Outcome,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.components.base import Component
from hicache.core.errors import CallerError, CoreBug
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
from hicache.core.types import RequestId
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver

from ..clock import Timer
from ..content import prefix_tags
from ..options import EngineOptions
from ..workload import Job, Workload
from .costs import CostModel
from .decode import DecodeSet
from .forward import Forward
from .seats import count, stretch, too_small
from .sequence import UNSET_NS, Sequence, hold
from .waiting import WaitingQueue

__all__ = ["Engine", "EngineOptions"]
_MOST_ALONE = 64


class Engine:
    """Serves one workload. `ended`: called with each sequence that ended.

    sequences: those that have arrived and not ended. tagged: make tags of their content.
    _progress counts whatever may turn a refusal into a grant; a refused admission, growth or chunk
    is tried again only after it moved (_blocked_at, _stalled_at, _starved_at: where it stood then).
    """

    def __init__(
        self,
        workload: Workload,
        clock: Timer,
        driver: Driver,
        controller: TransferController,
        forward: Forward,
        costs: CostModel,
        options: EngineOptions,
        ended: Callable[[Sequence], None],
        tagged: bool,
        components: Several[Component],
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
        self._components = components
        self._stretch = stretch(components, workload.page_size, options.growth_tokens)
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
        self._stalled_at = -1
        self._starved_at = -1
        self.last_refusal: Refused | None = None

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
        self._take_replies()
        self._finish_ended()
        self._retry_stalled()
        self._grow_full()
        self._batch = []
        self._budget = self._options.token_budget - len(self._decode)
        self._continue()
        self._admit()
        self._controller.start()
        self._launch()

    def _take_replies(self) -> None:
        before = self._controller.unanswered
        self._apply(self._driver.poll())
        self._progress += self._controller.unanswered != before

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
                hold(self.sequences[outcome.request], outcome)
            elif kind is Restarted:
                assert isinstance(outcome, Restarted)
                self._leave_stage(self.sequences[outcome.request])
                self._unseat(self.sequences[outcome.request])

    def _leave_stage(self, sequence: Sequence) -> None:
        """Whatever it was doing, it does no more; its counters are as of now."""
        index = sequence.job.index
        self._prefilling.pop(index, None)
        self._stalled.pop(index, None)
        if self._decode.holds(sequence):
            self._decode.leave(sequence)

    def _unseat(self, sequence: Sequence) -> None:
        if sequence.first_token_ns == UNSET_NS:
            sequence.counted = False
        sequence.length = sequence.job.input_length + sequence.generated
        sequence.held = sequence.touched = 0
        self._running -= 1
        self._progress += 1
        self._waiting.push_front(sequence)

    def _retry_stalled(self) -> None:
        for sequence in list(self._stalled.values()) if self._progress != self._stalled_at else ():
            if self._stalled.pop(sequence.job.index, None) is not None:
                self._grow(sequence)

    def _finish_ended(self) -> None:
        """Before anything grows: what has ended must not be retracted to make room."""
        while (sequence := self._decode.pop_ended()) is not None:
            self._forward.touch_decoded(sequence, leaving=True)
            self._finish(sequence)

    def _grow_full(self) -> None:
        while (sequence := self._decode.pop_full()) is not None:
            self._forward.touch_decoded(sequence)
            self._grow(sequence)

    def _finish(self, sequence: Sequence) -> None:
        job = sequence.job
        self._feed(Finished(job.index, sequence.key, sequence.final))
        self._running -= 1
        self._progress += 1
        sequence.finish_ns = self._clock.now_ns
        del self.sequences[job.index]
        self._ended(sequence)

    def _grow(self, sequence: Sequence) -> None:
        """Pages for the next tokens: a stretch of them, or where that is refused just one. No pass
        is in flight, so what lies behind the window of its next token may go."""
        index, held = sequence.job.index, sequence.held
        needed = held + 1
        wanted = min(held + self._stretch, sequence.final)
        for _ in range(self._running + 2):
            refusal = self._refusal_of(self._feed(PagesWanted(index, wanted, held)), sequence)
            if refusal is None:
                self._decode.join(sequence, self._page_size)
                return
            if wanted > needed:
                wanted = needed
            elif refusal.preempt != NO_REQUEST:
                self._retract(self.sequences[refusal.preempt])
                if refusal.preempt == index:
                    return
            else:
                self._stalled[index] = sequence
                self._stalled_at = self._progress
                return
        raise CoreBug(f"request {index}: refused after every other was retracted")

    def _retract(self, sequence: Sequence) -> None:
        """It gives its pages back and waits again, what it generated being prompt from now on."""
        job = sequence.job
        self._leave_stage(sequence)
        self._forward.touch_decoded(sequence, leaving=True)
        length = job.input_length + sequence.generated
        key = sequence.key.first(length // self._page_size)
        reusable = (length - 1) // self._page_size
        self._feed(Retracted(job.index, key, length, reusable, sequence.held))
        sequence.retractions += 1
        self._unseat(sequence)
        sequence.alone += not self._running
        if sequence.alone > _MOST_ALONE:
            raise CoreBug(f"request {job.index}: alone, and refused {_MOST_ALONE} times")

    def _refusal_of(self, outcomes: list[Outcome], sequence: Sequence) -> Refused | None:
        for outcome in outcomes:
            if type(outcome) is Refused:
                if outcome.reason == "too_large":
                    short = outcome.component, outcome.needed, outcome.available
                    raise too_small(sequence.job.index, *short)
                self.last_refusal = outcome
                return outcome
        return None

    def _chunk(self, left: int) -> int:
        """Tokens of the next chunk; one that does not complete a prompt ends at a page's end."""
        return left if left <= self._budget else self._budget - self._budget % self._page_size

    def _continue(self) -> None:
        """The next chunk of each prefill under way, oldest first; a refusal ends the round, or the
        younger would take what the older waits for."""
        if self._progress == self._starved_at:
            return
        for index, sequence in list(self._prefilling.items()):
            chunk = self._chunk(sequence.length - sequence.held)
            if chunk < 1:
                return
            if index in self._prefilling and not self._extend(sequence, chunk):
                self._starved_at = self._progress
                return

    def _extend(self, sequence: Sequence, chunk: int) -> bool:
        """Whether it goes on, or was itself retracted so that others can."""
        index = sequence.job.index
        for _ in range(self._running + 1):
            outcomes = self._feed(ContinueWanted(index, chunk))
            refusal = self._refusal_of(outcomes, sequence)
            if refusal is None:
                self._schedule(sequence, outcomes)
                return True
            victim = self.sequences.get(refusal.preempt)
            if victim is None:
                return False
            self._retract(victim)
            if victim is sequence:
                return True
            self._blocked_at = self._progress  # or it would be admitted again at once
        raise CoreBug(f"request {index}: refused after every other was retracted")

    def _admit(self) -> None:
        while (
            len(self._waiting)
            and self._running < self._options.max_running
            and self._progress not in (self._blocked_at, self._starved_at)
        ):
            sequence = self._waiting.best(self._reusable)
            chunk = self._chunk(sequence.length)
            if chunk < 1:
                self._blocked_at = self._progress
                return
            self._take_in(sequence)
            outcomes = self._feed(AdmitWanted(sequence.job.index, chunk))
            if self._refusal_of(outcomes, sequence) is not None:
                self._blocked_at = self._progress
                return
            self._waiting.remove(sequence)
            self._running += 1
            self._prefilling[sequence.job.index] = sequence
            self._schedule(sequence, outcomes)

    def _take_in(self, sequence: Sequence) -> None:
        """Tell the core of it. Late, because a long queue's keys would not fit in memory."""
        if sequence.taken_in:
            return
        sequence.taken_in = True
        sequence.key = self._workload.key(sequence.job, sequence.final)
        if self._tagged:
            sequence.tags = prefix_tags(sequence.key)
        length = sequence.length
        key = sequence.key.first(length // self._page_size)
        self._feed(Arrived(sequence.job.index, key, length, (length - 1) // self._page_size))

    def _reusable(self, sequence: Sequence) -> int:
        self._take_in(sequence)
        for outcome in self._feed(MatchWanted(sequence.job.index)):
            if type(outcome) is Matched:
                return outcome.device_pages + outcome.host_pages
        raise CoreBug(f"request {sequence.job.index}: its match was not answered")

    def _schedule(self, sequence: Sequence, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if type(outcome) is Prefill:
                if outcome.end_token == outcome.start_token and not outcome.completes_prompt:
                    raise CoreBug(f"request {outcome.request}: a chunk of nothing, not its last")
                hold(sequence, outcome)
                self._batch.append((sequence, outcome))
                self._budget -= outcome.end_token - outcome.start_token
            elif type(outcome) is Admitted and not sequence.counted:
                count(sequence, outcome, self._components, self._page_size)
                sequence.counted = True
                sequence.admit_ns = self._clock.now_ns

    def _launch(self) -> None:
        decoding = len(self._decode)
        self._busy = bool(self._batch or decoding)
        if self._batch:
            self._forward.launch(
                self._batch, decoding, self._decode.context, lambda: self._pass_ended(1)
            )
        elif decoding:
            time_ns, steps = self._quiet_run(decoding)
            self._forward.launch_decode(time_ns, lambda: self._pass_ended(steps))

    def _quiet_run(self, decoding: int) -> tuple[int, int]:
        """Duration and number of the decode steps up to the first that anything could change.

        A boundary that admitted nobody and continued nothing would do the same again at the next
        one unless a sequence is due or some event of the world comes first, so both end the run.
        """
        limit = self._decode.quiet_steps() if self._options.fast_forward else 1
        horizon_ns = self._clock.next_ns()
        if horizon_ns >= 0:
            horizon_ns -= self._clock.now_ns
        context = self._decode.context
        step_ns = self._costs.step_ns
        duration_ns = step_ns((), decoding, context)
        steps = 1
        while steps < limit and (horizon_ns < 0 or duration_ns < horizon_ns):
            context += decoding
            duration_ns += step_ns((), decoding, context)
            steps += 1
        return duration_ns, steps

    def _pass_ended(self, steps: int) -> None:
        self._busy = False
        self._decode.steps += steps
        for sequence, prefill in self._batch:
            self._prefilled(sequence, prefill)
        self._boundary()

    def _prefilled(self, sequence: Sequence, prefill: Prefill) -> None:
        ok = not any(self._controller.load_failed(flight) for flight in prefill.after)
        self._feed(PrefillDone(prefill.flight, ok))
        self._progress += 1
        if not ok:
            return
        sequence.held = sequence.touched = prefill.end_token
        if not prefill.completes_prompt:
            return
        del self._prefilling[sequence.job.index]
        sequence.generated += 1
        if sequence.first_token_ns == UNSET_NS:
            sequence.first_token_ns = self._clock.now_ns
        if sequence.generated == sequence.outputs:
            self._finish(sequence)
        else:
            self._decode.join(sequence, self._page_size)
