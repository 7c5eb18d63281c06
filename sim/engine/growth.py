"""Ends and grows decoding sequences at a step boundary.

Does not decide when a sequence is due (see decode), and does not hold the running sequences (see
running).
"""

from __future__ import annotations

from collections.abc import Iterable

from hicache.core.actions import NO_REQUEST
from hicache.core.components.base import UNBOUNDED, Component
from hicache.core.errors import CoreBug
from hicache.core.events import PagesWanted
from hicache.core.types import RequestId

from .forward import Forward
from .running import Blocked, Running
from .sequence import Sequence


class Growth:
    """stretch: number of tokens for which pages are requested at a time."""

    def __init__(self, running: Running, forward: Forward, stretch: int) -> None:
        self._running = running
        self._forward = forward
        self._stretch = stretch
        self._blocked: dict[RequestId, Blocked] = {}  # why each stalled sequence waits

    def finish_ended(self) -> None:
        """Ends the finished sequences. Called before any growth, which could otherwise retract
        them.
        """
        while (sequence := self._running.decode.pop_ended()) is not None:
            self._forward.report_decoded(sequence, leaving=True)
            self._running.finish(sequence)

    def retry_stalled(self) -> None:
        """Retries all stalled sequences, oldest first, if the refusal of any of them may have
        changed.
        """
        stalled, blocked = self._running.stalled, self._blocked
        if all(self._running.is_blocked(blocked.get(index)) for index in stalled):
            return
        blocked.clear()
        for sequence in list(stalled.values()):
            if stalled.pop(sequence.job.index, None) is not None:
                self._grow(sequence)

    def grow_full(self) -> None:
        while (sequence := self._running.decode.pop_full()) is not None:
            self._forward.report_decoded(sequence)
            self._grow(sequence)

    def _grow(self, sequence: Sequence) -> None:
        """Requests pages for the next stretch of tokens, or for one token if that is refused.

        No pass is in flight, so pages behind the window of the next token may be freed.
        """
        running = self._running
        index, held = sequence.job.index, sequence.held
        wanted = min(held + self._stretch, sequence.final)
        for _ in range(len(running.admitted) + 2):
            refusal = running.refusal_of(running.feed(PagesWanted(index, wanted, held)), sequence)
            if refusal is None:
                running.decode.join(sequence, running.page_size)
                return
            if (wanted - 1) // running.page_size > held // running.page_size:
                wanted = held + 1  # ask again for one page only, which may be granted
            elif refusal.preempt != NO_REQUEST and refusal.preempt not in running.arriving:
                running.retract(running.sequences[refusal.preempt])
                if refusal.preempt == index:
                    return
            else:
                running.stalled[index] = sequence
                self._blocked[index] = running.blocked(refusal)
                return
        raise CoreBug(f"request {index}: refused after every other was retracted")


def growth_tokens(components: Iterable[Component], page_size: int, wanted: int) -> int:
    """Returns the tokens to request at a time while decoding.

    Pages requested in advance are held besides those of the window. With a window the stretch is at
    most two pages, or an eighth of the window if that is more.
    """
    bounds = [
        each.window_pages
        for each in components
        if each.positional and each.window_pages < UNBOUNDED
    ]
    ahead = [max(2, window // 8) * page_size for window in bounds]
    return max(page_size, min(wanted, *ahead) if ahead else wanted)
