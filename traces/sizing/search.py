"""The largest load that a machine serves, between one that it serves and one that it does not.

The bracket begins at a guess, widens by ever larger steps until it has both ends, and is halved (on
a logarithmic scale) until they are within 5 %. Loads have three digits, so that they can be typed.
Which loads are served is a rule of deciding/serving. Does not replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import sqrt

WITHIN = 1.05  # the ends of a bracket that is narrow enough
_STEP = 1.4  # the first one; each further one is the square of the one before
_MOST_STEPS = 5  # in one direction
_DIGITS = 3


@dataclass(slots=True)
class Search:
    """start: the first load. tried: whether each load was served."""

    start: Fraction
    tried: dict[Fraction, bool] = field(default_factory=dict)

    @property
    def served(self) -> Fraction | None:
        """The largest load that is served, below every one that is not."""
        low = [load for load, good in self.tried.items() if good]
        high = self.refused
        return max((load for load in low if high is None or load < high), default=None)

    @property
    def refused(self) -> Fraction | None:
        """The smallest load that is not served."""
        return min((load for load, good in self.tried.items() if not good), default=None)

    def next(self) -> Fraction | None:
        """The load to try next; None if the bracket is narrow enough, or has no other end."""
        served, refused = self.served, self.refused
        if served is None and refused is None:
            return typed(float(self.start))
        if served is not None and refused is not None:
            if refused <= served * Fraction(WITHIN):
                return None
            return typed(sqrt(float(served) * float(refused)))
        steps = len(self.tried)
        if steps > _MOST_STEPS:
            return None
        by = _STEP ** (2 ** (steps - 1))
        return typed(float(served) * by if served is not None else float(refused or 0) / by)


def typed(load: float) -> Fraction:
    """The load with three digits."""
    return Fraction(f"{load:.{_DIGITS}g}")
