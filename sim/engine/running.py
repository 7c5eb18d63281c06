"""The requests in the engine: how the core's answers change them, how they grow, end, and go back.

A reserve refuses an admission that the core could grant, for the sake of the tokens that running
requests will still generate: `RESERVES` has the rules. It counts pages of the first component;
pages that requests share count for each of them.

A request whose admission is refused with "fetching" leaves the queue, so that those behind it are
admitted. When its prefetch has ended, it goes back to the front of the queue. A time limit from its
arrival ends the wait: the core has no clock, so the engine tells it (`PrefetchLimitReached`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hicache.core.actions import (
    NO_REQUEST,
    Cached,
    Granted,
    Matched,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.components import Component
from hicache.core.config import UNBOUNDED
from hicache.core.errors import CoreBug
from hicache.core.events import Event, Finished, PagesWanted, PrefetchLimitReached, Retracted
from hicache.core.types import RequestId, Tier, TransferId
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver

from ..clock import Timer
from ..errors import too_small
from ..schedulers import Scheduler
from ..storage.executor import StoreExecutor
from ..times.base import TimeModel
from .forward import Forward
from .sequence import UNSET_NS, MicroBatch, Sequence

_MILLION = 1_000_000
_LEAST_PERCENT = 14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_DECAY_STEPS = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
_RETRACT_STEPS = 20  # SGLANG_RETRACT_DECODE_STEPS
_CLIP = 4096  # SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION
_MOST_ALONE = 64


class Reserve:
    """The base, and vLLM's rule, no reserve: a request is admitted if its prompt fits, and others
    are retracted when pages run out. The others change what they need of it.

    settled: its answer stays the same while requests only decode."""

    settled = True

    def admits(self, sequence: Sequence, running: Sequences) -> bool:
        """Whether a waiting request may be admitted beside those that run."""
        return True

    def idle(self) -> None:
        """Nothing runs."""

    def decoded(self, steps: int) -> None:
        """So many decode steps are done."""

    def retracted(self, running: Sequences) -> None:
        """A request was retracted; these are left."""


class FullReserve(Reserve):
    """All pages that a request may ever need are reserved: none is retracted. TensorRT-LLM's
    GUARANTEED_NO_EVICT."""

    def admits(self, sequence: Sequence, running: Sequences) -> bool:
        return running.promised + -(-sequence.final // running.page_size) <= running.pool.capacity


class Estimated(Reserve):
    """A part of the tokens that running requests may still generate is reserved, and all that the
    new one may. The part falls with each decode step and is estimated anew after a retraction (S
    new_token_ratio).

        admitted if   prompt + min(left, clip) < available - part x sum of min(left, clip)
        part          from `permille` down to 0.14 of that over 600 decode steps; after a retraction
                      (generated + 20 for each request) / (all outputs + 1), at most 1; as at first
                      when nothing runs

    Kept in millionths, so that it is the same on every machine. permille: the part at first.
    """

    settled = False

    def __init__(self, permille: int) -> None:
        self._first = min(_MILLION, permille * _MILLION // 1000)
        self._least = self._first * _LEAST_PERCENT // 100
        self._decay = (self._first - self._least) // _DECAY_STEPS
        self._part = self._first

    def admits(self, sequence: Sequence, running: Sequences) -> bool:
        expected = sum(min(running.left(sequence), _CLIP) for sequence in running.admitted.values())
        tokens = running.pool.available * running.page_size - self._part * expected // _MILLION
        return sequence.length + min(running.left(sequence), _CLIP) < tokens

    def idle(self) -> None:
        self._part = self._first

    def decoded(self, steps: int) -> None:
        self._part = max(self._least, self._part - steps * self._decay)

    def retracted(self, running: Sequences) -> None:
        left = running.admitted.values()
        outputs = sum(sequence.outputs for sequence in left)
        generated = sum(sequence.outputs - running.left(sequence) for sequence in left)
        part = (generated + _RETRACT_STEPS * len(left)) * _MILLION // (outputs + 1)
        self._part = min(_MILLION, part)


RESERVES: dict[str, Callable[[int], Reserve]] = {
    "none": lambda permille: Reserve(),
    "whole": lambda permille: FullReserve(),
    "estimated": Estimated,
}


@dataclass(frozen=True, slots=True)
class PrefetchLimit:
    """How long a request may wait for its prefetch: base_ns, and token_ns for each prompt token
    that was not cached when it arrived."""

    base_ns: int
    token_ns: int = 0


class Relay(NamedTuple):
    """The other end of an engine of a disaggregated fleet. Calls come at a step boundary.

    gives   whether a request whose last token was sampled decodes elsewhere. If so, its pages stay
            until `Engine.release`: a prefill engine gives away what it has computed.
    bring   fill the pages of a prompt that was computed elsewhere, from the first token that is not
            cached here, with a transfer instead of a pass; then call `Engine.delivered`.
    """

    gives: Callable[[Sequence], bool]
    bring: Callable[[Sequence, Prefill], None]


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

    progress: the value of `Sequences.progress` then. after: a transfer without a reply then, or 0.
    """

    progress: int
    after: TransferId = 0


class Sequences:
    """All sequences of an engine, those that wait too. ended: called with each sequence that ended.

    sequences   sequences that have arrived and not ended.
    prefilling  sequences with prefill chunks left.
    batches     micro-batches; the one whose turn it is has the next pass. stalled, decode, gaps:
                those of this one.
    wanted      sequences to retract when their passes have ended, and which sequence needs it.
    incoming    admitted sequences whose prompt a relay brings. leaving: sequences that decode
                elsewhere, whose pages a relay still reads.
    admitted    those that are computed here. promised: the pages that they have when they end.
                reserve: what must stay free for them. pool: that of the first component.
    retractions how often one was retracted.
    progress    counts the steps that may turn a refusal into a grant: a request ended, gave its
                pages back, or computed a chunk.
    stretch     tokens for which pages are requested at a time.
    """

    def __init__(
        self,
        platform: Platform,
        waiting: Scheduler[Sequence],
        page_size: int,
        reserve: Reserve,
        stretch: int,
        ended: Callable[[Sequence], None],
    ) -> None:
        self.waiting = waiting
        self.page_size = page_size
        self.sequences: dict[RequestId, Sequence] = {}
        self.prefilling: dict[RequestId, Sequence] = {}
        self.incoming: dict[RequestId, Sequence] = {}
        self.leaving: dict[RequestId, Sequence] = {}
        count = range(platform.forward.stages)
        self.batches = [MicroBatch(index, lambda: platform.clock.now_ns) for index in count]
        self.wanted: dict[RequestId, Sequence] = {}
        self.give_turn(self.batches[0])
        self.admitted: dict[RequestId, Sequence] = {}
        self.promised = 0
        self.reserve = reserve
        self.pool = platform.driver.core.view.pool(Tier.DEVICE)
        self.progress = 0
        self.retractions = 0
        self.last_refusal: Refused | None = None
        self._stretch = stretch
        self._blocked: dict[RequestId, Blocked] = {}  # why each stalled sequence waits
        self._clock = platform.clock
        self._driver = platform.driver
        self._controller = platform.controller
        self._forward = platform.forward
        self._ended = ended
        self._store = platform.store
        self._relay = platform.relay
        self._limit = platform.limit
        self._fetching: dict[RequestId, Sequence] = {}  # whose prefetch has not ended
        self._parked: dict[RequestId, Sequence] = {}  # in the order in which they left the queue

    def give_turn(self, batch: MicroBatch) -> None:
        self.turn, self.decode = batch, batch.decode
        self.stalled, self.gaps = batch.stalled, batch.gaps

    def left(self, sequence: Sequence) -> int:
        """Tokens that a sequence will still generate."""
        return sequence.outputs - self.batches[sequence.home].decode.generated(sequence)

    def admit(self, sequence: Sequence) -> None:
        """It is computed here from now on."""
        self._fetching.pop(sequence.job.index, None)
        self.admitted[sequence.job.index] = sequence
        self.promised += -(-sequence.final // self.page_size)

    def prefetch(self, sequence: Sequence, arrival: Event) -> None:
        """Tells the core of a request, and begins its time limit if a prefetch was begun."""
        index, size = sequence.job.index, self.page_size
        self._fetching[index] = sequence
        outcomes = self.feed(arrival)
        if index not in self._fetching:
            return
        matched = next(outcome for outcome in outcomes if type(outcome) is Matched)
        assert isinstance(matched, Matched)
        cached = (matched.device_pages + matched.host_pages) * size
        missing = (sequence.length - 1) // size * size - cached
        if missing <= 0:
            del self._fetching[index]
        elif self._limit is not None:
            limit_ns = self._limit.base_ns + self._limit.token_ns * missing
            self._clock.after(limit_ns, lambda: self._reached(index))

    def _reached(self, index: RequestId) -> None:
        if index in self._fetching:
            self.feed(PrefetchLimitReached(index))

    def park(self, sequence: Sequence) -> None:
        """Takes a request that waits for its prefetch out of the queue."""
        self.waiting.remove(sequence)
        self._parked[sequence.job.index] = sequence

    def unpark(self) -> None:
        """Puts those whose prefetch has ended back to the front of the queue, in their order."""
        for index, sequence in reversed(list(self._parked.items())):
            if index not in self._fetching:
                del self._parked[index]
                self.waiting.push_front(sequence)

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

    def take_storage_replies(self) -> None:
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
                if outcome.retract != NO_REQUEST and self._in_flight(outcome.retract):
                    self.wanted[outcome.retract] = sequence
                    outcome = outcome._replace(retract=NO_REQUEST)
                self.last_refusal = outcome
                sequence.refusals += 1
                return outcome
        if self.wanted:  # it has what it needed
            self.wanted = {number: by for number, by in self.wanted.items() if by is not sequence}
        return None

    def _in_flight(self, index: RequestId) -> bool:
        """Whether a pass under way computes it."""
        sequence = self.sequences[index]
        return bool(sequence.passes) or self.batches[sequence.home].holds(sequence)

    def retract_wanted(self) -> None:
        """Retracts those that had a pass under way when another needed their pages, and that still
        needs them."""
        for index, other in list(self.wanted.items()):
            if index in self.admitted and self._in_flight(index):
                continue
            del self.wanted[index]
            if index in self.admitted and other.job.index in self.admitted:
                self.retract(self.sequences[index])

    def finish_ended(self) -> None:
        """Ends the finished sequences. Called before any growth, which could otherwise retract
        them."""
        while (sequence := self.decode.pop_ended()) is not None:
            self._forward.report_decoded(sequence, leaving=True)
            self.finish(sequence)

    def retry_stalled(self) -> None:
        """Retries all stalled sequences, oldest first, if the refusal of any of them may have
        changed."""
        stalled, blocked = self.stalled, self._blocked
        if all(self.is_blocked(blocked.get(index)) for index in stalled):
            return
        blocked.clear()
        for sequence in list(stalled.values()):
            if stalled.pop(sequence.job.index, None) is not None:
                self._grow(sequence)

    def grow_full(self) -> None:
        while (sequence := self.decode.pop_full()) is not None:
            self._forward.report_decoded(sequence)
            self._grow(sequence)

    def _grow(self, sequence: Sequence) -> None:
        """Requests pages for the next stretch of tokens, or for one token if that is refused.

        No pass is in flight, so pages behind the window of the next token may be freed.
        """
        index, kept = sequence.job.index, sequence.kv_tokens
        tokens = min(kept + self._stretch, sequence.final)
        for _ in range(len(self.admitted) + 2):
            refusal = self.refusal_of(self.feed(PagesWanted(index, tokens, kept)), sequence)
            if refusal is None:
                self.decode.join(sequence, self.page_size)
                return
            if (tokens - 1) // self.page_size > kept // self.page_size:
                tokens = kept + 1  # ask again for one page only, which may be granted
            elif refusal.retract != NO_REQUEST and refusal.retract not in self.incoming:
                self.retract(self.sequences[refusal.retract])
                if refusal.retract == index:
                    return
            else:
                self.stalled[index] = sequence
                self._blocked[index] = self.blocked(refusal)
                return
        raise CoreBug(f"request {index}: refused after every other was retracted")

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
        part of its prompt."""
        job = sequence.job
        self._stop(sequence)
        self._forward.report_decoded(sequence, leaving=True)
        length = job.input_length + sequence.generated
        key = sequence.key.first(length // self.page_size)
        reusable = (length - 1) // self.page_size
        self.feed(Retracted(job.index, key, length, reusable, sequence.kv_tokens))
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
                self._fetching.pop(outcome.request, None)
                fetched = outcome.first_page, outcome.fetched_pages
                self.sequences[outcome.request].prefetched = fetched

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
        sequence.kv_tokens = sequence.reported = sequence.begun = 0
        sequence.passes.clear()
        self._leave(sequence)
        self.progress += 1
        self.waiting.push_front(sequence)


def growth_tokens(components: Iterable[Component], page_size: int, wanted: int) -> int:
    """Returns the tokens to request at a time while decoding.

    Pages requested in advance are held besides those of the window. With a window the stretch is at
    most two pages, or an eighth of the window if that is more.
    """
    ahead = [
        max(2, each.window_pages // 8) * page_size
        for each in components
        if each.positional and each.window_pages < UNBOUNDED
    ]
    return max(page_size, min(wanted, *ahead) if ahead else wanted)
