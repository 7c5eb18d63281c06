"""A part of the tokens that running requests may still generate is reserved, and the new request
whole. The part falls with each decode step and is estimated anew after a preemption. SGLang's
new_token_ratio.

    admitted if   prompt + output < available - part x sum of min(left, clip)
    part          from `permille` down to 0.14 of that over 600 decode steps; after a preemption
                  (generated + 20 for each request) / (all outputs + 1), at most 1; as at first
                  when nothing runs

Kept in millionths, so that it is the same on every machine.
"""

from __future__ import annotations

from ..sequence import Sequence
from .base import Held

_ONE = 1_000_000
_LEAST_PERCENT = 14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_DECAY_STEPS = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
_RETRACT_STEPS = 20  # SGLANG_RETRACT_DECODE_STEPS
_CLIP = 4096  # SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION


class Estimated:
    """permille: the part at first."""

    settled = False

    def __init__(self, permille: int) -> None:
        self._first = min(_ONE, permille * _ONE // 1000)
        self._least = self._first * _LEAST_PERCENT // 100
        self._decay = (self._first - self._least) // _DECAY_STEPS
        self._part = self._first

    def admits(self, sequence: Sequence, held: Held) -> bool:
        expected = sum(min(held.left(one), _CLIP) for one in held.admitted.values())
        room = held.available * held.page_size - self._part * expected // _ONE
        return sequence.length + min(held.left(sequence), _CLIP) < room

    def idle(self) -> None:
        self._part = self._first

    def decoded(self, steps: int) -> None:
        self._part = max(self._least, self._part - steps * self._decay)

    def retracted(self, held: Held) -> None:
        left = held.admitted.values()
        outputs = sum(one.outputs for one in left)
        generated = sum(one.outputs - held.left(one) for one in left)
        part = (generated + _RETRACT_STEPS * len(left)) * _ONE // (outputs + 1)
        self._part = min(_ONE, part)


def reserve(permille: int) -> Estimated:
    return Estimated(permille)
