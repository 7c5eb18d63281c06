"""The file of fitted constants: from factors to text, rounded, with what each was fitted to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sim.fitted.factors import ENGINE, FORMAT, Factor

from .parameters import Parameter
from .samples import Sample
from .solving import Solution
from .table import constants_of

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
