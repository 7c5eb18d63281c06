"""The whole fit: from all published rows to the file of constants. Rows of the judge half do not
enter, whatever they hold.

The passes of a replay depend a little on the constants, so there are two rounds: replays with the
defaults, a fit, replays with its constants, and a fit that begins from them. Nothing depends on the
constants that the project has already, so the same rows give the same file: factors, rounded, with
what each was fitted to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hicache.core.errors import CallerError
from sim.fitted.factors import ENGINE, FORMAT, Factor

from ..choosing import FIT, half
from ..rows import Row
from .parameters import Parameter
from .samples import Sample, samples_of, usable
from .solving import Solution, solve
from .table import constants_of

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
    part of it that is. Raises CallerError if there is nothing to fit to."""
    fitted_on = (row for row in rows if half(row) == FIT and usable(row))
    used = sorted(fitted_on, key=lambda row: row.id)
    # runs of thousands of requests take most of the time; their passes hardly depend on constants
    quick = [row for row in used if not row.kind.startswith("throughput")] or used
    given: tuple[Factor, ...] = ()
    solution: Solution | None = None
    for number in range(1, _ROUNDS + 1):
        what = f"round {number} of {_ROUNDS}"
        samples = samples_of(
            used if number == _ROUNDS else quick, given, partial(progress, f"{what}: replays")
        )
        if not samples:
            raise CallerError(
                "--fit: expected published times of runs in the half to fit, found none; "
                "name other measurements with --data"
            )
        solution = solve(samples, solution, progress=partial(progress, f"{what}: constants"))
        found = Fit(samples, solution)
        given = found.factors
    return found


_DIGITS = 4
_SMALLEST = 0.002  # a factor nearer to 1 is left out


def factors_of(samples: Sequence[Sample], solution: Solution) -> tuple[Factor, ...]:
    """The factors that change something, rounded as the file has them."""
    found = []
    names = {one.row: constants_of(one) for one in samples}
    for parameter, factor in solution.factors():
        rounded = float(f"{factor:.{_DIGITS}g}")
        if abs(rounded - 1) < _SMALLEST:
            continue
        on = [one for one in samples if _applies(parameter, one, names[one.row])]
        groups = tuple(sorted({one.group for one in on}))
        default = _default(parameter, on)
        found.append(Factor(parameter.constant, parameter.where, rounded, default, len(on), groups))
    return tuple(found)


def text_of(factors: Sequence[Factor]) -> str:
    """The file, one constant a line."""
    groups = sorted({group for one in factors for group in one.groups})
    numbers = {group: number for number, group in enumerate(groups)}
    lines = [json.dumps(_entry(one, numbers)) for one in factors]
    head = f'"format": {FORMAT},\n"groups": {json.dumps(groups, indent=1)},\n'
    return "{\n" + head + '"constants": [\n' + ",\n".join(lines) + "\n]\n}\n"


def _entry(one: Factor, numbers: dict[str, int]) -> dict[str, Any]:
    return {
        "constant": one.constant,
        "where": list(one.where),
        "factor": one.factor,
        "default": one.default,
        "rows": one.rows,
        "groups": [numbers[group] for group in one.groups],
    }


def _applies(parameter: Parameter, sample: Sample, names: Sequence[str]) -> bool:
    labels = sample.labels.all
    return any(parameter.applies(name, labels) for name in names)


def _default(parameter: Parameter, samples: Sequence[Sample]) -> float | None:
    """The default that a factor changes, if it is one and the same in all of these samples."""
    values: set[float | None] = set()
    for sample in samples:
        if parameter.constant.startswith(ENGINE):
            values.add(float(sample.host[parameter.constant.removeprefix(ENGINE)]))
        else:
            kind, _, field = parameter.constant.rpartition(".")
            values.add(getattr(sample.kernels[kind], field) if kind in sample.kernels else None)
    return values.pop() if len(values) == 1 else None
