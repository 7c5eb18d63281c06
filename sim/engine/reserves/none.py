"""No reserve: a request is admitted if its prompt fits, and others are preempted when pages run
out. vLLM."""

from __future__ import annotations

from ..sequence import Sequence
from .base import Held


class NoReserve:
    settled = True

    def admits(self, sequence: Sequence, held: Held) -> bool:
        return True

    def idle(self) -> None:
        pass

    def decoded(self, steps: int) -> None:
        pass

    def retracted(self, held: Held) -> None:
        pass


def reserve(permille: int) -> NoReserve:
    return NoReserve()
