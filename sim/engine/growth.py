"""Decoding sequences at a step boundary: those that are done end, those that are full get pages.

Must not live here: when a sequence is due (decode), or who runs (running).
"""

from __future__ import annotations

from hicache.core.actions import NO_REQUEST
from hicache.core.errors import CoreBug
from hicache.core.events import PagesWanted

from .forward import Forward
from .running import Running
from .sequence import Sequence


class Growth:
    """stretch: tokens whose pages are asked for at a time."""

    def __init__(self, running: Running, forward: Forward, stretch: int) -> None:
        self._running = running
        self._forward = forward
        self._stretch = stretch
        self._stalled_at = -1  # the progress when a sequence stalled last

    def finish_ended(self) -> None:
        """Before anything grows: what has ended must not be retracted to make room."""
        while (sequence := self._running.decode.pop_ended()) is not None:
            self._forward.touch_decoded(sequence, leaving=True)
            self._running.finish(sequence)

    def retry_stalled(self) -> None:
        stalled = self._running.stalled
        if self._running.progress == self._stalled_at:
            return
        for sequence in list(stalled.values()):
            if stalled.pop(sequence.job.index, None) is not None:
                self._grow(sequence)

    def grow_full(self) -> None:
        while (sequence := self._running.decode.pop_full()) is not None:
            self._forward.touch_decoded(sequence)
            self._grow(sequence)

    def _grow(self, sequence: Sequence) -> None:
        """Pages for the next tokens: a stretch of them, or where that is refused just one. No pass
        is in flight, so what lies behind the window of its next token may go."""
        running = self._running
        index, held = sequence.job.index, sequence.held
        needed = held + 1
        wanted = min(held + self._stretch, sequence.final)
        for _ in range(running.count + 2):
            refusal = running.refusal_of(running.feed(PagesWanted(index, wanted, held)), sequence)
            if refusal is None:
                running.decode.join(sequence, running.page_size)
                return
            if wanted > needed:
                wanted = needed
            elif refusal.preempt != NO_REQUEST:
                running.retract(running.sequences[refusal.preempt])
                if refusal.preempt == index:
                    return
            else:
                running.stalled[index] = sequence
                self._stalled_at = running.progress
                return
        raise CoreBug(f"request {index}: refused after every other was retracted")
