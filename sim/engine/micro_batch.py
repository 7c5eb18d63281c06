"""A micro-batch: the sequences that decode together, and the pass that it has under way.

An engine of one stage has one of them. A pipeline has as many as stages, so that each stage can
have a pass (see pipeline). A sequence decodes in the micro-batch whose pass completed its prompt;
chunks of a prompt may go into any. Does not compose passes (see engine, prefill).
"""

from __future__ import annotations

from collections.abc import Callable

from hicache.core.types import RequestId

from .decode import DecodeSet
from .sequence import Sequence
from .token_gaps import TokenGaps


class MicroBatch:
    """stalled: decoding sequences that wait for pages. gaps: the times between tokens. busy: a pass
    of it has not left the last stage. waits_ns: since when it has none."""

    def __init__(self, index: int, now_ns: Callable[[], int]) -> None:
        self.index = index
        self.gaps = TokenGaps(now_ns)
        self.decode = DecodeSet(self.gaps)
        self.stalled: dict[RequestId, Sequence] = {}
        self.busy = False
        self.waits_ns = 0

    def holds(self, sequence: Sequence) -> bool:
        """Whether its pass computes the sequence, which decodes in it."""
        return self.busy and self.decode.holds(sequence)

    def pause(self, now_ns: int) -> None:
        """Counts the time until now, in which it had no pass, as a wait of those that decode."""
        if not self.busy:
            if len(self.decode):
                self.gaps.paused_ns += now_ns - self.waits_ns
            self.waits_ns = now_ns
