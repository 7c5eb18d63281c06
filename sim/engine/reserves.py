"""Rules of what must stay free for running requests before another is admitted. `RULES` has them.

A reserve refuses an admission that the core could grant, for the sake of the tokens that running
requests will still generate. It counts pages of the first component; pages that requests share
count for each of them. Does not take pages (see the core), and is not asked when nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .sequence import Sequence

_ONE = 1_000_000
_LEAST_PERCENT = 14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_DECAY_STEPS = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
_RETRACT_STEPS = 20  # SGLANG_RETRACT_DECODE_STEPS
_CLIP = 4096  # SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION


class Held(Protocol):
    """What a reserve may ask of the running requests. promised: pages that all admitted requests
    have when they end."""

    @property
    def page_size(self) -> int: ...
    @property
    def promised(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def available(self) -> int: ...
    @property
    def admitted(self) -> Mapping[int, Sequence]: ...

    def left(self, sequence: Sequence) -> int:
        """Tokens that a request will still generate."""


class Reserve:
    """No reserve: a request is admitted if its prompt fits, and others are preempted when pages run
    out. vLLM. The others change what they need of it.

    settled: its answer stays the same while requests only decode."""

    settled = True

    def admits(self, sequence: Sequence, held: Held) -> bool:
        """Whether a waiting request may be admitted beside those that run."""
        return True

    def idle(self) -> None:
        """Nothing runs."""

    def decoded(self, steps: int) -> None:
        """So many decode steps are done."""

    def retracted(self, held: Held) -> None:
        """A request was retracted; these are left."""


class Whole(Reserve):
    """All pages that a request may ever need are reserved: none is preempted. TensorRT-LLM's
    GUARANTEED_NO_EVICT."""

    def admits(self, sequence: Sequence, held: Held) -> bool:
        return held.promised + -(-sequence.final // held.page_size) <= held.capacity


class Estimated(Reserve):
    """A part of the tokens that running requests may still generate is reserved, and the new one
    whole. The part falls with each decode step and is estimated anew after a preemption. SGLang's
    new_token_ratio.

        admitted if   prompt + output < available - part x sum of min(left, clip)
        part          from `permille` down to 0.14 of that over 600 decode steps; after a preemption
                      (generated + 20 for each request) / (all outputs + 1), at most 1; as at first
                      when nothing runs

    Kept in millionths, so that it is the same on every machine. permille: the part at first.
    """

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


RULES: dict[str, Callable[[int], Reserve]] = {
    "none": lambda permille: Reserve(),
    "whole": lambda permille: Whole(),
    "estimated": Estimated,
}
