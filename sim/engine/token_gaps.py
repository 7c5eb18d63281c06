"""The times between two tokens of a request (inter-token latency), exact and in bounded memory.

A decode step gives one token to every active sequence, so a step has one duration however many
sequences it serves, and a sequence has a range of steps:

    gaps of a request = the steps of its ranges, one gap each
                      + the time that it waited before the first step of a range, added to that gap
                      + one gap for each prefill of a request that was preempted, which samples one

A pass in which nobody decodes although sequences are active is no step: its time is part of the
next step. A sequence that joins after it has not waited so long, so its wait counts as negative.

A range ends when the sequence stops decoding, or waits for pages. So the memory is 8 bytes a step
and 32 bytes a range, and no token is visited. The gaps of a request add up to the time from its
first to its last token. Several engines have one record each; a request may have gaps in more than
one of them. Does not decide which steps run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .sequence import UNSET_NS, Sequence

Times = NDArray[np.int64]
_NO_STEP = -1


class TokenGaps:
    """See the module. steps_ns: the duration of each decode step and pass, by its number.
    paused_ns: the time since the last step in which decoding waited for passes of chunks. now_ns:
    the time; called at the boundary between two passes."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.steps_ns = array("q")
        self.paused_ns = 0
        self._now_ns = now_ns
        self._ranges = tuple(array("q") for _ in range(4))  # request, first step, end, waited ns
        self._single = tuple(array("q") for _ in range(2))  # request, ns

    def step(self, elapsed_ns: int, first: int = -1) -> None:
        """A step has taken so long. first: the number of the first step since the last call, if
        `steps_ns` has got others meanwhile; it waited for the passes before it."""
        self.steps_ns.append(elapsed_ns)
        self.steps_ns[first] += self.paused_ns
        self.paused_ns = 0

    def sampled(self, sequence: Sequence) -> None:
        """A prefill gave the sequence a token: its first one, or one after a preemption."""
        now_ns = self._now_ns()
        if sequence.token_ns != UNSET_NS:
            self.close(sequence)
            _append(self._single, sequence.job.index, now_ns - sequence.token_ns)
        sequence.token_ns = now_ns

    def join(self, sequence: Sequence, step: int) -> None:
        """The sequence decodes from this step on. It goes on with its range if it has missed
        neither a step nor time."""
        waited_ns = self._now_ns() - sequence.token_ns - self.paused_ns
        if sequence.range_end != step or waited_ns or sequence.range_first == _NO_STEP:
            self.close(sequence)
            sequence.range_first, sequence.range_end = step, step
            sequence.range_waited_ns = waited_ns

    def leave(self, sequence: Sequence, step: int) -> None:
        """The sequence has decoded until this step, which has just ended."""
        if step > sequence.range_end:
            sequence.range_end = step
            sequence.token_ns = self._now_ns() - self.paused_ns

    def close(self, sequence: Sequence) -> None:
        """Notes the range of a sequence that has left."""
        first, end = sequence.range_first, sequence.range_end
        if end > first != _NO_STEP:
            _append(self._ranges, sequence.job.index, first, end, sequence.range_waited_ns)
        sequence.range_first = _NO_STEP

    def weighted(self, ended: Times) -> tuple[Times, Times]:
        """The gaps of the requests that ended: times in nanoseconds, and how often each occurs."""
        _, single_ns = _kept(self._single, ended)
        steps = np.array(self.steps_ns, dtype=np.int64)
        _, first, end, waited_ns = _kept(self._ranges, ended)
        late = waited_ns != 0
        change = np.zeros(len(steps) + 1, dtype=np.int64)
        np.add.at(change, first + late, 1)
        np.add.at(change, end, -1)
        counts = np.cumsum(change[:-1])
        alone = np.concatenate((steps[first[late]] + waited_ns[late], single_ns))
        used = counts > 0
        ones = np.ones(len(alone), dtype=np.int64)
        return np.concatenate((steps[used], alone)), np.concatenate((counts[used], ones))

    def slower(self, limit_ns: int, requests: int) -> Times:
        """How many gaps of each request, by its number, are longer than the limit."""
        steps = np.asarray(self.steps_ns)
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(steps > limit_ns)))
        request, first, end, waited_ns = (np.asarray(column) for column in self._ranges)
        slow = before[end] - before[first]
        slow += (steps[first] <= limit_ns) & (steps[first] + waited_ns > limit_ns)
        slow -= (steps[first] > limit_ns) & (steps[first] + waited_ns <= limit_ns)
        found = np.zeros(requests, dtype=np.int64)
        np.add.at(found, request, slow)
        single, single_ns = (np.asarray(column) for column in self._single)
        np.add.at(found, single[single_ns > limit_ns], 1)
        return found


def _append(columns: tuple[array[int], ...], *values: int) -> None:
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _kept(columns: tuple[array[int], ...], requests: Times) -> tuple[Times, ...]:
    """The rows of these requests."""
    found = [np.asarray(column) for column in columns]
    rows = np.isin(found[0], requests)
    return tuple(column[rows] for column in found)
