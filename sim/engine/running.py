"""The requests in the engine: their state, and how the core's answers change it.

Lives here: sending an event to the core, ending a request, and retracting one. Does not contain the
order of a step (see engine), prefill chunks and admission (see prefill) or the growth of decoding
sequences (see growth).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hicache.core.actions import (
    NO_REQUEST,
    Cached,
    Granted,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.errors import CoreBug
from hicache.core.events import Event, Finished, Retracted
from hicache.core.types import FlightId, RequestId, Tier
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver

from ..clock import Timer
from ..errors import too_small
from ..schedulers.base import Scheduler
from ..storage.executor import StoreExecutor
from ..times.base import TimeModel
from .forward import Forward
from .micro_batch import MicroBatch
from .prefetching import Prefetching, PrefetchLimit
from .reserves import Reserve
from .sequence import UNSET_NS, Sequence


class Relay(Protocol):
    """The other end of an engine of a disaggregated fleet. Calls come at a step boundary.

    A prefill engine gives away each request whose prompt it has computed, and keeps its pages until
    they have been read. A decode engine gets requests whose prompt was computed elsewhere: it takes
    pages for it as for any prompt, and a transfer fills them instead of a pass (see sim/fleet).
    """

    def gives(self, sequence: Sequence) -> bool:
        """Whether a request whose last token was sampled decodes elsewhere. If so, its pages stay
        until `Engine.release`."""

    def fetch(self, sequence: Sequence, prefill: Prefill) -> None:
        """Fill the pages of this prompt, from the first token that is not cached here; then call
        `Engine.delivered`."""


_MOST_ALONE = 64


@dataclass(frozen=True, slots=True)
class Platform:
    """The parts that an engine runs on. store: None without storage. limit: how long a request may
    wait for its prefetch; None if none waits. relay: None for an engine that serves alone."""

    clock: Timer
    driver: Driver
    controller: TransferController
    forward: Forward
    costs: TimeModel
    store: StoreExecutor | None = None
    limit: PrefetchLimit | None = None
    relay: Relay | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """The state at a refusal; the request is repeated only after this state has changed.

    progress: the value of `Running.progress` then. after: a flight without a reply then, or 0.
    """

    progress: int
    after: FlightId = 0


class Running:
    """See the module. ended: called with each sequence that ended.

    sequences   sequences that have arrived and not ended.
    prefilling  sequences with prefill chunks left.
    batches     micro-batches; the one whose turn it is has the next pass. stalled, decode, gaps:
                those of this one.
    wanted      sequences to retract when their passes have ended, and which sequence needs it.
    arriving    admitted sequences whose prompt a transfer brings. leaving: sequences that decode
                elsewhere, whose pages a transfer still reads.
    admitted    those that are computed here. promised: the pages that they have when they end.
                reserve: what must stay free for them.
    retractions how often one was preempted.
    progress    counts the steps that may turn a refusal into a grant: a request ended, gave its
                pages back, or computed a chunk.
    """

    def __init__(
        self,
        platform: Platform,
        waiting: Scheduler[Sequence],
        page_size: int,
        reserve: Reserve,
        ended: Callable[[Sequence], None],
    ) -> None:
        self.waiting = waiting
        self.page_size = page_size
        self.sequences: dict[RequestId, Sequence] = {}
        self.prefilling: dict[RequestId, Sequence] = {}
        self.arriving: dict[RequestId, Sequence] = {}
        self.leaving: dict[RequestId, Sequence] = {}
        count = range(platform.forward.stages)
        self.batches = [MicroBatch(index, lambda: platform.clock.now_ns) for index in count]
        self.wanted: dict[RequestId, Sequence] = {}
        self.give_turn(self.batches[0])
        self.admitted: dict[RequestId, Sequence] = {}
        self.promised = 0
        self.reserve = reserve
        self._pool = platform.driver.core.view.pool(Tier.DEVICE)
        self.progress = 0
        self.retractions = 0
        self.last_refusal: Refused | None = None
        self._clock = platform.clock
        self._driver = platform.driver
        self._controller = platform.controller
        self._forward = platform.forward
        self._ended = ended
        self._store = platform.store
        self._relay = platform.relay
        self.prefetching = Prefetching(platform.clock, waiting, platform.limit, self.feed)

    def give_turn(self, batch: MicroBatch) -> None:
        self.turn, self.decode = batch, batch.decode
        self.stalled, self.gaps = batch.stalled, batch.gaps

    @property
    def capacity(self) -> int:
        """Pages of the first component on device."""
        return self._pool.capacity

    @property
    def available(self) -> int:
        """Of these, those that no request holds."""
        return self._pool.available

    def left(self, sequence: Sequence) -> int:
        """Tokens that a sequence will still generate."""
        return sequence.outputs - self.batches[sequence.home].decode.generated(sequence)

    def admit(self, sequence: Sequence) -> None:
        """It is computed here from now on."""
        self.admitted[sequence.job.index] = sequence
        self.promised += -(-sequence.final // self.page_size)

    def _leave(self, sequence: Sequence) -> None:
        del self.admitted[sequence.job.index]
        self.promised -= -(-sequence.final // self.page_size)

    def decoded(self, steps: int, elapsed_ns: int, before_last_ns: int = 0) -> None:
        """A pass of so many decode steps has ended; 0 if decoding waited for it. before_last_ns:
        what all steps but the last took."""
        self.decode.steps += steps
        if not steps:
            self.gaps.paused_ns += elapsed_ns
            return
        self.gaps.step(elapsed_ns - before_last_ns, -steps)
        if len(self.decode):
            self.reserve.decoded(steps)

    def take_replies(self) -> None:
        self._apply(self._driver.poll())

    def take_stored(self) -> None:
        """Applies the replies of storage, after those of backups: what is fetched needs the host
        copies above it. They change nothing that a pass reads."""
        assert self._store is not None
        for reply in (*self._controller.poll_backups(), *self._store.poll()):
            self.feed(reply)

    def blocked(self, refusal: Refused) -> Blocked:
        """Returns the condition after which this request may be repeated."""
        return Blocked(self.progress, refusal.after)

    def is_blocked(self, blocked: Blocked | None) -> bool:
        """Whether repeating the request now would give the same refusal."""
        return (
            blocked is not None
            and blocked.progress == self.progress
            and not (blocked.after and not self._controller.is_unanswered(blocked.after))
        )

    def feed(self, event: Event) -> list[Outcome]:
        outcomes = self._driver.feed(event)
        self._apply(outcomes)
        return outcomes

    def refusal_of(self, outcomes: list[Outcome], sequence: Sequence) -> Refused | None:
        for outcome in outcomes:
            if type(outcome) is Refused:
                if outcome.reason == "too_large":
                    short = outcome.component, outcome.needed, outcome.available
                    raise too_small(sequence.job.index, *short)
                if outcome.preempt != NO_REQUEST and self._in_flight(outcome.preempt):
                    self.wanted[outcome.preempt] = sequence
                    outcome = outcome._replace(preempt=NO_REQUEST)
                self.last_refusal = outcome
                sequence.refusals += 1
                return outcome
        if self.wanted:  # it has what it needed
            self.wanted = {one: by for one, by in self.wanted.items() if by is not sequence}
        return None

    def _in_flight(self, index: RequestId) -> bool:
        """Whether a pass under way computes it."""
        sequence = self.sequences[index]
        return bool(sequence.flights) or self.batches[sequence.home].holds(sequence)

    def retract_wanted(self) -> None:
        """Retracts those that had a pass under way when another needed their pages, and that still
        needs them."""
        for index, other in list(self.wanted.items()):
            if index in self.admitted and self._in_flight(index):
                continue
            del self.wanted[index]
            if index in self.admitted and other.job.index in self.admitted:
                self.retract(self.sequences[index])

    def finish(self, sequence: Sequence) -> None:
        """Its last token was sampled here."""
        self._leave(sequence)
        if self._relay is not None and self._relay.gives(sequence):
            self.leaving[sequence.job.index] = sequence
            self.progress += 1
        else:
            self.end(sequence)

    def end(self, sequence: Sequence) -> None:
        """Ends a sequence that is computed no more."""
        job = sequence.job
        self.feed(Finished(job.index, sequence.key, sequence.final))
        self.progress += 1
        sequence.finish_ns = self._clock.now_ns
        self.batches[sequence.home].gaps.close(sequence)
        del self.sequences[job.index]
        self._ended(sequence)

    def retract(self, sequence: Sequence) -> None:
        """Frees the pages of a sequence and puts it back in the queue. Its generated tokens become
        part of its prompt.
        """
        job = sequence.job
        self._stop(sequence)
        self._forward.report_decoded(sequence, leaving=True)
        length = job.input_length + sequence.generated
        key = sequence.key.first(length // self.page_size)
        reusable = (length - 1) // self.page_size
        self.feed(Retracted(job.index, key, length, reusable, sequence.held))
        sequence.retractions += 1
        self.retractions += 1
        self._requeue(sequence)
        self.reserve.retracted(self)
        sequence.alone += not self.admitted
        if sequence.alone > _MOST_ALONE:
            raise CoreBug(f"request {job.index}: alone, and refused {_MOST_ALONE} times")

    def _apply(self, outcomes: list[Outcome]) -> None:
        """Applies the outcomes that may be part of any answer."""
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Cached or kind is Granted:
                assert isinstance(outcome, Cached | Granted)
                self.sequences[outcome.request].set_tables(outcome)
            elif kind is Restarted:
                assert isinstance(outcome, Restarted)
                sequence = self.sequences[outcome.request]
                if sequence.first_token_ns == UNSET_NS:
                    sequence.counted = False  # its reuse did not arrive; count it again
                self._stop(sequence)
                self._requeue(sequence)
            elif kind is Prefetched:
                assert isinstance(outcome, Prefetched)
                self.prefetching.ended(outcome, self.sequences[outcome.request])

    def _stop(self, sequence: Sequence) -> None:
        """Stops its prefill or decode and brings its counters up to date."""
        index = sequence.job.index
        self.prefilling.pop(index, None)
        batch = self.batches[sequence.home]
        batch.stalled.pop(index, None)
        if batch.decode.holds(sequence):
            if batch is not self.turn:
                batch.pause(self._clock.now_ns)
            batch.decode.leave(sequence)

    def _requeue(self, sequence: Sequence) -> None:
        """Puts a sequence that is no longer admitted at the front of the queue."""
        sequence.length = sequence.job.input_length + sequence.generated
        sequence.held = sequence.reported = sequence.begun = 0
        sequence.flights.clear()
        self._leave(sequence)
        self.progress += 1
        self.waiting.push_front(sequence)
