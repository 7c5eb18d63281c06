"""Whether calls of one kind fare well: failures in a row, an outage, and the pauses between probes.

Does not know a clock, a store or a lock; see `breaker`.
"""

from __future__ import annotations


class Health:
    """why: the reason of the outage. told: whether a person was told of it."""

    def __init__(self, first_pause_s: float, longest_pause_s: float) -> None:
        self._first_s, self._longest_s = first_pause_s, longest_pause_s
        self._failures = 0  # in a row
        self._spent_s = 0.0  # in these
        self._out_since: float | None = None
        self._back_at: float | None = None
        self._pause = first_pause_s
        self._probe_at = float("-inf")
        self._probing = False
        self.why = ""
        self.told = False

    @property
    def is_out(self) -> bool:
        return self._out_since is not None

    def answered(self) -> None:
        self._failures, self._spent_s = 0, 0.0

    def failed(self, seconds: float, whole: bool) -> None:
        """A call has failed. whole: for all of its values."""
        self._failures = self._failures + 1 if whole else 0
        self._spent_s += seconds

    def is_over(self, failures: int, patience_s: float) -> bool:
        """Whether that is too much."""
        return self._failures >= failures or self._spent_s >= patience_s

    def go_out(self, now: float, why: str) -> None:
        """The first pause is longer than the last one if it was back for a short time only."""
        stayed = self._back_at is None or now - self._back_at > self._longest_s
        self._pause = self._first_s if stayed else min(2 * self._pause, self._longest_s)
        self._out_since, self.why, self.told = now, why, False
        self._probe_at = now + self._pause

    def back(self, now: float) -> float:
        """Returns for how long it was out."""
        assert self._out_since is not None
        away = now - self._out_since
        self._back_at = now
        self.forget()
        return away

    def forget(self) -> None:
        """It counts as well again."""
        self._out_since, self._probing, self.told = None, False, False
        self.answered()

    def begin_probe(self, now: float) -> bool:
        """Whether the pause is over and no probe is under way. Then one has begun."""
        if self._probing or now < self._probe_at:
            return False
        self._probing = True
        return True

    def end_probe(self) -> None:
        self._probing = False

    def failed_probe(self, now: float) -> None:
        """The next one comes after twice the pause."""
        self._probing = False
        self._pause = min(2 * self._pause, self._longest_s)
        self._probe_at = now + self._pause
