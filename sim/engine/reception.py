"""Requests on their way from the client to the queue of the scheduler.

A request takes time in the client, in HTTP and in the tokeniser, and requests of one burst wait for
each other there. An engine that composes a pass while the one before it runs does not see a request
that comes during a pass until the next pass is composed, so that it joins the one after. An engine
may also look for new requests only after several passes. Does not hold the queue (see schedulers)
or admit (see prefill).
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Timer
from ..options import EngineOptions
from ..schedulers.base import Scheduler
from .sequence import Sequence


class Reception:
    """See the module. received: called with each request when the scheduler's process has it."""

    def __init__(
        self,
        options: EngineOptions,
        clock: Timer,
        waiting: Scheduler[Sequence],
        received: Callable[[Sequence], None],
    ) -> None:
        self._profile = options.profile
        self._poll_passes = options.poll_passes
        self._passes = 0  # since requests were taken
        self._clock = clock
        self._waiting = waiting
        self._received = received
        self._free_ns = 0  # when the front end has handled all requests that have arrived
        self._new: list[Sequence] = []  # came while a pass ran
        self._next: list[Sequence] = []  # may be taken when the next pass is composed

    @property
    def pending(self) -> bool:
        """Whether a request has come that a later pass may have."""
        return bool(self._new or self._next)

    def arrive(self, sequence: Sequence) -> None:
        """A client sends a request now."""
        profile, now_ns = self._profile, self._clock.now_ns
        delay_ns = profile.request_host_ns
        delay_ns += profile.request_token_host_ns * sequence.job.input_length
        if profile.request_serial_ns:
            self._free_ns = max(self._free_ns, now_ns) + profile.request_serial_ns
            delay_ns += self._free_ns - now_ns
        if delay_ns:
            self._clock.after(delay_ns, lambda: self._received(sequence))
        else:
            self._received(sequence)

    def queue(self, sequence: Sequence, busy: bool) -> None:
        """Puts a received request in the queue, now or later. busy: whether a pass runs."""
        if busy and self._profile.lookahead:
            self._new.append(sequence)
        elif busy and self._poll_passes > 1:
            self._next.append(sequence)
        else:
            self._passes = 0
            self._waiting.push(sequence)

    def compose(self, decoded: int) -> None:
        """A pass is composed: it may have the requests that came before the last one began.

        decoded: how many passes have only decoded since the last call; 0 if one had chunks."""
        self._passes = (self._passes + decoded) % self._poll_passes if decoded else 0
        if self.pending:
            if not self._passes:
                self._push(self._next)
            self._next += self._new
            self._new = []

    def hurry(self) -> None:
        """No pass can begin without them: nothing is ahead of what came last."""
        self._push(self._next)
        self._push(self._new)

    def _push(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self._waiting.push(sequence)
        sequences.clear()
