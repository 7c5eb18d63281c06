"""The set of decoding sequences: how many steps until one of them ends or needs pages.

Counts the tokens of all decoding sequences without visiting each one at every step. Does not handle
pages, the core or time.

Every active sequence gains one token per decode step. With `steps` decode steps done so far,

    held(s) = s.held + steps - s.since        context of the next step = base + active * (steps + 1)
    base    = sum of (s.held - s.since)       changes only when a sequence joins or leaves
"""

from __future__ import annotations

from heapq import heappop, heappush

from .sequence import NEVER_DUE, Sequence
from .token_gaps import TokenGaps

_ENDS, _FULL = 0, 1


class DecodeSet:
    """See the module. steps: decode steps done. gaps: told of each sequence that joins or leaves.

    Entries of the heap: (step, kind, request).
    """

    def __init__(self, gaps: TokenGaps) -> None:
        self.steps = 0
        self._gaps = gaps
        self._active: dict[int, Sequence] = {}
        self._base = 0
        self._due: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._active)

    @property
    def context(self) -> int:
        """Tokens that the sequences attend to in the next step, including their new tokens."""
        return self._base + len(self._active) * (self.steps + 1)

    def join(self, sequence: Sequence, page_size: int) -> None:
        """Adds a sequence. It decodes from the next step on, until it ends or its table is full."""
        sequence.since = self.steps
        self._gaps.join(sequence, self.steps)
        self._active[sequence.job.index] = sequence
        self._base += sequence.held - sequence.since
        room = len(sequence.table) * page_size - sequence.held
        left = sequence.outputs - sequence.generated
        kind = _FULL if room < left else _ENDS
        sequence.due = (self.steps + min(room, left), kind)
        heappush(self._due, (*sequence.due, sequence.job.index))

    def leave(self, sequence: Sequence) -> None:
        """Removes a sequence and brings its counters up to date."""
        done = self.steps - sequence.since
        self._base -= sequence.held - sequence.since
        sequence.held += done
        sequence.generated += done
        sequence.due = NEVER_DUE
        self._gaps.leave(sequence, self.steps)
        del self._active[sequence.job.index]

    def generated(self, sequence: Sequence) -> int:
        """Tokens that a sequence has sampled so far, whether it decodes or not."""
        done = self.steps - sequence.since if self.holds(sequence) else 0
        return sequence.generated + done

    def holds(self, sequence: Sequence) -> bool:
        return sequence.job.index in self._active

    def pop_ended(self) -> Sequence | None:
        """Removes and returns one sequence that has generated all its tokens, or None."""
        return self._pop(_ENDS)

    def pop_full(self) -> Sequence | None:
        """Removes and returns one sequence whose table is full, or None. Call `pop_ended` first."""
        return self._pop(_FULL)

    def _pop(self, kind: int) -> Sequence | None:
        if self.quiet_steps() != 0 or self._due[0][1] != kind:
            return None
        sequence = self._active[heappop(self._due)[2]]
        self.leave(sequence)
        return sequence

    def quiet_steps(self) -> int:
        """Steps until the next sequence is due; -1 when none decodes."""
        due = self._due
        while due:
            step, kind, index = due[0]
            sequence = self._active.get(index)
            if sequence is not None and sequence.due == (step, kind):
                assert step >= self.steps, f"request {index} was due at {step}, now {self.steps}"
                return step - self.steps
            heappop(due)
        return -1
