"""The whole fit: from all published rows to the file of constants.

It has two rounds. Passes are first those of replays with the defaults, on which they depend only a
little; what comes out replays all rows again, and the passes of that are fitted once more. Nothing
depends on the constants that the project has already, so the same rows give the same file: factors,
rounded, with what each was fitted to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hicache.core.errors import CallerError
from sim.fitted.factors import ENGINE, FORMAT, PEAK, Factor, is_part, total

from ..rows import Row
from .parameters import Parameter
from .recording import Workers, recorded
from .response import with_response
from .samples import Sample
from .solving import Solution, solve
from .table import FIELDS, constants_of

_ONE = Workers()
Progress = Callable[[int, float], None]
PARTS = 4


@dataclass(frozen=True, slots=True)
class Fitted:
    """beyond: of constants that the factors put above the peak of the data sheet, at which they are
    held: name, group of the runs, and the part of the peak that the fit asked for."""

    factors: tuple[Factor, ...]
    beyond: list[tuple[str, str, float]]


def fit(
    rows: Sequence[Row],
    workers: Workers = _ONE,
    progress: Progress = lambda part, done: None,
) -> Fitted:
    """progress: called with the number of the part, of `PARTS`, and how much of it is done. Raises
    CallerError if there is nothing to fit to."""
    samples = recorded(rows, (), workers, partial(progress, 0))
    if not samples:
        raise CallerError(
            "--fit: expected published times of runs, found none; name other measurements with "
            "--data"
        )
    first = fitted_to(samples, (), partial(progress, 1))
    again = recorded(rows, first, workers, partial(progress, 2))
    factors = fitted_to(with_response(samples, again, first), first, partial(progress, 3))
    return Fitted(factors, beyond(samples, factors))


def fitted_to(
    samples: Sequence[Sample],
    begin: Sequence[Factor],
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Factor, ...]:
    """The factors of these samples. begin: where the search begins."""
    return factors_of(samples, solve(samples, begin, progress))


def beyond(samples: Sequence[Sample], factors: Sequence[Factor]) -> list[tuple[str, str, float]]:
    """See `Fitted`."""
    found: dict[tuple[str, str], float] = {}
    seen = {
        (f"{kind}.{field}", getattr(kernel, field), one.labels, one.group)
        for one in samples
        for kind, kernel in one.kernels.items()
        for field in FIELDS
        if is_part(field)
    }
    for name, default, labels, group in seen:
        part = round(default * total(name, labels.all, factors), _DIGITS)
        if part > max(PEAK, found.get((name, group), 0.0)):
            found[name, group] = part
    return sorted((name, group, part) for (name, group), part in found.items())


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
