"""The whole fit: from rows to factors, and the file that has them.

It has two rounds. Passes are first those of replays with the defaults, on which they depend only a
little; what comes out replays all rows again, and the passes of that are fitted once more. Nothing
depends on the constants that the project has already, so the same rows give the same file.

Where requests come in bunches, one waits for the host's time of those before it, and the longer
that is, the more of them come together: a second of it may cost more than a second of TTFT. What
the second recording has more than the first one foretells under the same constants is this cost.

Factors are found by least squares of the logarithms of predicted over measured. What errors beyond
a tenth count grows ever more slowly, so single bad rows do not pull. Groups with more rows than
most count less for each row, so that none decides alone. Factors are held near 1 by their spread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from sim.fitted import ENGINE, FORMAT, PEAK, Factor, is_part, total

from .parameters import Parameter, parameters
from .rows import TTFT, Row
from .samples import Sample, Target, recorded
from .table import FIELDS, Floats, Table, constants_of

_ROBUST = 0.1  # error, as a logarithm, beyond which more of it counts less
_WIDE = 0.4  # the same for the first steps
_MOST, _MOST_HOST = 1.1, 3.0
_STEPS = 40
_LEAST = 1e-3  # part of the whole error that a step must save, or it is the last
_REQUEST = "request_host_ns"
_LEAST_S = 1e-4  # of change in the host's time, below which it tells nothing
_MOST_RESPONSE = 8.0  # seconds of TTFT for a second of it
_NS = 1e-9
_DIGITS = 4
_SMALLEST = 0.002  # a factor nearer to 1 is left out


@dataclass(frozen=True, slots=True)
class Fitted:
    """samples: of the second round. beyond: of constants that the factors put above the peak of the
    data sheet, at which they are held: name, group of the runs, and the part of the peak that the
    fit asked for."""

    factors: tuple[Factor, ...]
    samples: list[Sample]
    beyond: list[tuple[str, str, float]]


def fit(rows: Iterable[Row], jobs: int) -> Fitted:
    """jobs: processes."""
    samples = recorded(rows, (), jobs)
    first = fitted_to(samples, ())
    again = with_response(samples, recorded(rows, first, jobs), first)
    factors = fitted_to(again, first)
    return Fitted(factors, again, _beyond(samples, factors))


def fitted_to(samples: Sequence[Sample], begin: Sequence[Factor]) -> tuple[Factor, ...]:
    """The factors of these samples. begin: where the search begins."""
    return factors_of(samples, solve(samples, begin))


def predicted(samples: Sequence[Sample], factors: Sequence[Factor]) -> list[float]:
    """Every figure of the samples under these factors, in seconds."""
    table = Table(samples, [Parameter(one.constant, one.where, 1.0) for one in factors])
    found: list[float] = table.predict(np.log([one.factor for one in factors])).tolist()
    return found


def with_response(
    before: Sequence[Sample], now: Sequence[Sample], factors: Sequence[Factor]
) -> list[Sample]:
    """`now`, with what each target grows by in `requests`. before: from replays with the defaults.
    now: of rows among them, from replays with `factors`."""
    known = {one.row: one for one in before}
    old = iter(predicted([known[one.row] for one in now], factors))
    new = iter(predicted(now, factors))
    found = []
    for sample in now:
        default_s = sample.host[_REQUEST] * _NS
        factor = total(ENGINE + _REQUEST, sample.labels.all, factors)
        host_s = default_s * factor
        targets = []
        for target in sample.figures:
            grown = next(new) - next(old)
            change = host_s - default_s
            if target.what == TTFT and abs(change) >= _LEAST_S:
                target = _grown(target, 1 + grown / change, host_s)
            targets.append(target)
        found.append(replace(sample, figures=tuple(targets)))
    return found


def _grown(target: Target, by: float, host_s: float) -> Target:
    """Predicts the same as before where the host takes `host_s`."""
    requests = min(max(by, target.requests), _MOST_RESPONSE)
    return replace(
        target, requests=requests, rest=target.rest - (requests - target.requests) * host_s
    )


@dataclass(frozen=True)
class Solution:
    """parameters and the logarithms of their factors, in the same order."""

    parameters: list[Parameter]
    logs: Floats

    def factors(self) -> list[tuple[Parameter, float]]:
        return list(zip(self.parameters, np.exp(self.logs).tolist(), strict=True))


def solve(samples: Sequence[Sample], begin: Sequence[Factor]) -> Solution:
    """The factors that fit best. begin: where the search begins."""
    found = parameters((one.labels, name) for one in samples for name in constants_of(one))
    table = Table(samples, found)
    spread = np.array([one.spread for one in found])
    weights = _weights(table)

    def errors(logs: Floats, robust: float) -> Floats:
        off = np.log(table.predict(logs) / table.measured)
        bent = np.sign(off) * np.sqrt(np.log1p((off / robust) ** 2)) * (robust / _ROBUST)
        return np.concatenate([weights * bent, logs / spread])

    def slopes(logs: Floats, robust: float) -> Floats:
        predicted, slope = table.slopes(logs)
        off = np.log(predicted / table.measured)
        far = np.maximum(np.abs(off / robust), 1e-6)
        bend = far / (1 + far**2) / np.sqrt(np.log1p(far**2)) / _ROBUST
        rows = (weights * bend / predicted)[:, None] * slope
        return np.concatenate([rows, np.diag(1 / spread)])

    most = np.array([_most(one) for one in found])
    logs = _logs_of(found, begin)
    # a wide loss first: what is far from its rows would count as a bad row in the narrow one
    for robust, part in ((_WIDE, 0.4), (_ROBUST, 0.6)):
        logs = least_squares(
            errors,
            logs,
            slopes,
            bounds=(-1.01 * most, 1.01 * most),
            max_nfev=max(1, round(_STEPS * part)),
            x_scale=spread,
            ftol=_LEAST,
            tr_solver="lsmr",
            args=(robust,),
        ).x
    return Solution(found, logs)


def _logs_of(found: Sequence[Parameter], factors: Sequence[Factor]) -> Floats:
    """The logarithms of these factors in the order of the parameters; 0 where there is none."""
    known = {(one.constant, one.where): one.factor for one in factors}
    return np.log([known.get((one.constant, one.where), 1.0) for one in found])


def _most(parameter: Parameter) -> float:
    """How far the logarithm of a factor may go, whatever the rows say."""
    return _MOST_HOST if parameter.constant.startswith(ENGINE) else _MOST


def _weights(table: Table) -> Floats:
    sizes = Counter(one.group for one in table.samples)
    mean = len(table.samples) / len(sizes)
    of_sample = np.array([min(1.0, (sizes[one.group] / mean) ** -0.25) for one in table.samples])
    found: Floats = of_sample[table.owner]
    return found


def _beyond(samples: Sequence[Sample], factors: Sequence[Factor]) -> list[tuple[str, str, float]]:
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
