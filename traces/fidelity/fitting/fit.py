"""The whole fit: from all published rows to the file of constants. Rows of the judge half do not
enter, whatever they hold.

The passes of a replay depend a little on the constants, so there are two rounds: replays with the
defaults, a fit, replays with its constants, and a fit that begins from them. Nothing depends on the
constants that the project has already, so the same rows give the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sim.fitted.factors import Factor

from .. import split
from ..rows import Row
from .samples import Sample, samples_of
from .solving import Solution, solve
from .writing import factors_of

_ROUNDS = 2

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Fit:
    """samples: of the last round."""

    samples: list[Sample]
    solution: Solution

    @property
    def factors(self) -> tuple[Factor, ...]:
        return factors_of(self.samples, self.solution)


def fit(rows: Sequence[Row], progress: Progress = lambda what, part: None) -> Fit:
    """rows: all of them; the fit half is chosen here. progress: called with what is done, and the
    part of it that is."""
    half = sorted((row for row in rows if split.half(row) == split.FIT), key=lambda row: row.id)
    # runs of thousands of requests take most of the time; their passes hardly depend on constants
    quick = [row for row in half if not row.kind.startswith("throughput")] or half
    given: tuple[Factor, ...] = ()
    solution: Solution | None = None
    for number in range(1, _ROUNDS + 1):
        what = f"round {number} of {_ROUNDS}"
        samples = samples_of(
            half if number == _ROUNDS else quick, given, partial(progress, f"{what}: replays")
        )
        solution = solve(samples, solution, progress=partial(progress, f"{what}: constants"))
        found = Fit(samples, solution)
        given = found.factors
    return found
