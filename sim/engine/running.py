"""The requests under way: their state, and what the core's answers change in it.

Lives here: telling the core an event, ending a request, and taking its pages back. Must not live
here: the order of a step (engine), prefill chunks and admission (prefill), or the growth of
decoding sequences (growth).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hicache.core.actions import Cached, Granted, Outcome, Refused, Restarted
from hicache.core.errors import CoreBug
from hicache.core.events import Event, Finished, Retracted
from hicache.core.types import FlightId, RequestId
from hicache.runtime.controller import TransferController
from hicache.runtime.driver import Driver

from ..clock import Timer
from ..errors import too_small
from ..schedulers.base import Scheduler
from .costs import CostModel
from .decode import DecodeSet
from .forward import Forward
from .sequence import UNSET_NS, Sequence

_MOST_ALONE = 64


@dataclass(frozen=True, slots=True)
class Platform:
    """What an engine serves requests with."""

    clock: Timer
    driver: Driver
    controller: TransferController
    forward: Forward
    costs: CostModel


@dataclass(frozen=True, slots=True)
class Blocked:
    """What has to change before the same is asked again: the progress that requests had made when
    it was refused, or a flight that had no reply then; 0 for none."""

    progress: int
    after: FlightId = 0


class Running:
    """See the module. ended: called with each sequence that ended.

    sequences   those that have arrived and not ended.
    prefilling  those with chunks to come. stalled: those that decode, as soon as they get pages.
    count       how many are admitted.
    progress    counts what requests did that may turn a refusal into a grant: they ended, gave
                their pages back, or computed a chunk.
    """

    def __init__(
        self,
        platform: Platform,
        waiting: Scheduler[Sequence],
        page_size: int,
        ended: Callable[[Sequence], None],
    ) -> None:
        self.waiting = waiting
        self.page_size = page_size
        self.sequences: dict[RequestId, Sequence] = {}
        self.prefilling: dict[RequestId, Sequence] = {}
        self.stalled: dict[RequestId, Sequence] = {}
        self.decode = DecodeSet()
        self.count = 0
        self.progress = 0
        self.last_refusal: Refused | None = None
        self._clock = platform.clock
        self._driver = platform.driver
        self._controller = platform.controller
        self._forward = platform.forward
        self._ended = ended

    def take_replies(self) -> None:
        self._apply(self._driver.poll())

    def blocked(self, refusal: Refused) -> Blocked:
        """What the refused has to wait for."""
        return Blocked(self.progress, refusal.after)

    def is_blocked(self, blocked: Blocked | None) -> bool:
        """Whether to ask again now would bring the same refusal."""
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
                self.last_refusal = outcome
                return outcome
        return None

    def finish(self, sequence: Sequence) -> None:
        job = sequence.job
        self.feed(Finished(job.index, sequence.key, sequence.final))
        self.count -= 1
        self.progress += 1
        sequence.finish_ns = self._clock.now_ns
        del self.sequences[job.index]
        self._ended(sequence)

    def retract(self, sequence: Sequence) -> None:
        """It gives its pages back and waits again. What it generated is part of its prompt from now
        on."""
        job = sequence.job
        self._stop(sequence)
        self._forward.report_decoded(sequence, leaving=True)
        length = job.input_length + sequence.generated
        key = sequence.key.first(length // self.page_size)
        reusable = (length - 1) // self.page_size
        self.feed(Retracted(job.index, key, length, reusable, sequence.held))
        sequence.retractions += 1
        self._requeue(sequence)
        sequence.alone += not self.count
        if sequence.alone > _MOST_ALONE:
            raise CoreBug(f"request {job.index}: alone, and refused {_MOST_ALONE} times")

    def _apply(self, outcomes: list[Outcome]) -> None:
        """What any answer may contain, whatever it answers."""
        for outcome in outcomes:
            kind = type(outcome)
            if kind is Cached or kind is Granted:
                assert isinstance(outcome, Cached | Granted)
                self.sequences[outcome.request].set_tables(outcome)
            elif kind is Restarted:
                assert isinstance(outcome, Restarted)
                sequence = self.sequences[outcome.request]
                if sequence.first_token_ns == UNSET_NS:
                    sequence.counted = False  # what it reused never came: it is counted anew
                self._stop(sequence)
                self._requeue(sequence)

    def _stop(self, sequence: Sequence) -> None:
        """Neither prefill nor decode goes on; its counters are as of now."""
        index = sequence.job.index
        self.prefilling.pop(index, None)
        self.stalled.pop(index, None)
        if self.decode.holds(sequence):
            self.decode.leave(sequence)

    def _requeue(self, sequence: Sequence) -> None:
        """It is admitted no more, and waits before all others."""
        sequence.length = sequence.job.input_length + sequence.generated
        sequence.held = sequence.reported = 0
        self.count -= 1
        self.progress += 1
        self.waiting.push_front(sequence)
