"""All pages that a request may ever need are reserved: none is preempted. TensorRT-LLM's
GUARANTEED_NO_EVICT."""

from __future__ import annotations

from ..sequence import Sequence
from .base import Held
from .none import NoReserve


class Whole(NoReserve):
    def admits(self, sequence: Sequence, held: Held) -> bool:
        return held.promised + -(-sequence.final // held.page_size) <= held.capacity


def reserve(permille: int) -> Whole:
    return Whole()
